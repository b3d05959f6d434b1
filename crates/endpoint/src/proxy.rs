//! Proxies to servers that speak HTTP, as the environment names them to other programs too:
//! `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in either case.

use std::{fmt, io, net::IpAddr, sync::Arc};

use http::{HeaderValue, Uri};
use hyper_util::{
    client::{
        legacy::connect::proxy::{SocksV5, Tunnel},
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use tower_service::Service;

use crate::{Error, ErrorKind, Result, config, dial::Dialler, line::Line};

/// Cause in the error if a proxy refuses a client that shows no login.
pub(crate) const LOGIN_WANTED: &str = "it wants a user and a password";

/// Proxies by target.
#[derive(Clone, Default)]
pub(crate) struct Proxies(Option<Arc<Known>>);

struct Known {
    matcher: Matcher,
    /// Hosts that no proxy leads to at one port: the matcher knows no ports.
    direct: Vec<(String, u16)>,
}

/// Hides everything: addresses of proxies hold passwords.
impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Proxies {
    /// Reads the proxies that the environment names.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an address that is no proxy of a known kind; the address is not
    /// shown.
    pub(crate) fn of_environment() -> Result<Self> {
        Self::named(config::of_either_case)
    }

    fn named(variable: impl Fn(&'static str) -> Option<String>) -> Result<Self> {
        let named = |name| {
            let address = variable(name).unwrap_or_default();
            let known = ["http", "socks5", "socks5h"];
            let is_known = address.is_empty()
                || Matcher::builder()
                    .all(address.as_str())
                    .build()
                    .intercept(&Uri::from_static("http://h/"))
                    .and_then(|proxy| Some(known.contains(&proxy.uri().scheme_str()?)))
                    .unwrap_or_default();
            if is_known {
                return Ok(address);
            }
            Err(Error::new(ErrorKind::Invalid, "use", format!("${name}"))
                .cause("it is not the address of a proxy that is known here")
                .hint("write http://host:port or socks5h://host:port"))
        };
        let (all, http, https) = (
            named("ALL_PROXY")?,
            named("HTTP_PROXY")?,
            named("HTTPS_PROXY")?,
        );
        if all.is_empty() && http.is_empty() && https.is_empty() {
            return Ok(Self(None));
        }
        let matcher = Matcher::builder().all(all).http(http).https(https);
        let none = variable("NO_PROXY").unwrap_or_default();
        let (mut direct, mut rest) = (Vec::new(), Vec::new());
        for one in none.split(',').map(str::trim) {
            match at_port(one) {
                Some(at) => direct.push(at),
                None => rest.push(one),
            }
        }
        let matcher = matcher.no(rest.join(",")).build();
        Ok(Self(Some(Arc::new(Known { matcher, direct }))))
    }

    /// Returns whether there may be any.
    pub(crate) fn are_there(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the proxy on the way to `uri`. None is used for this host, nor for hosts on this
    /// link alone.
    fn before(&self, uri: &Uri) -> Option<Intercept> {
        let host = uri.host()?.trim_matches(['[', ']']);
        let is_here = match host.parse() {
            Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_link_local(),
            Ok(IpAddr::V6(address)) => address.is_loopback() || address.is_unicast_link_local(),
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        };
        let known = self.0.as_ref()?;
        let is_direct = is_here || known.direct.iter().any(|at| leads_to(at, host, uri));
        known.matcher.intercept(uri).filter(|_| !is_direct)
    }

    /// Returns the `Authorization` value for the proxy that passes on a request over plain HTTP.
    pub(crate) fn authorization(&self, uri: &Uri) -> Option<HeaderValue> {
        let proxy = self.before(uri).filter(|proxy| is_plain(proxy, uri))?;
        proxy.basic_auth().cloned()
    }

    /// Connects to `uri` through a proxy; `None` if none leads there.
    ///
    /// # Errors
    /// The system's errors, and the proxy's refusal.
    pub(crate) async fn connect(
        &self,
        uri: &Uri,
        direct: Dialler,
    ) -> Option<io::Result<TokioIo<Line>>> {
        let proxy = self.before(uri)?;
        let fail = |cause: String| {
            let is_login = cause.contains("authorization required");
            let cause = if is_login { LOGIN_WANTED } else { &cause };
            let host = proxy.uri().authority().map_or("", |host| host.as_str());
            io::Error::other(format!("the proxy {host} does not lead there: {cause}"))
        };
        let connected = if is_plain(&proxy, uri) {
            let mut direct = direct;
            let line = direct.call(proxy.uri().clone()).await;
            line.map(|line| TokioIo::new(line.into_inner().through_proxy()))
                .map_err(|cause| fail(cause.to_string()))
        } else if proxy.uri().scheme_str() == Some("http") {
            let mut tunnel = Tunnel::new(proxy.uri().clone(), direct);
            if let Some(authorization) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(authorization.clone());
            }
            let line = tunnel.call(uri.clone()).await;
            line.map_err(|cause| fail(crate::web::deepest(&cause)))
        } else {
            // The proxy resolves names: often only it knows them.
            let mut socks = SocksV5::new(proxy.uri().clone(), direct);
            if let Some((user, password)) = proxy.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            let line = socks.call(with_port(uri)).await;
            line.map_err(|cause| fail(crate::web::deepest(&cause)))
        };
        Some(connected)
    }
}

/// Reads `host:port`, `.domain:port` or `[address]:port`.
fn at_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    // An address of version 6 has no port without brackets.
    let host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let host = host.trim_start_matches("*.").trim_start_matches('.');
    Some((host.to_ascii_lowercase(), port.parse().ok()?))
}

/// Returns whether an address is of this host, or of one in this domain, at this port.
fn leads_to((known, port): &(String, u16), host: &str, uri: &Uri) -> bool {
    let implied = match uri.scheme_str() {
        Some("http") => 80,
        _ => 443,
    };
    let host = host.to_ascii_lowercase();
    let above = host.strip_suffix(&**known);
    uri.port_u16().unwrap_or(implied) == *port
        && above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

/// Returns whether the proxy reads the requests and passes them on; otherwise it forwards bytes
/// that it can't read.
fn is_plain(proxy: &Intercept, uri: &Uri) -> bool {
    proxy.uri().scheme_str() == Some("http") && uri.scheme_str() == Some("http")
}

/// Returns the address with the port that its scheme implies.
fn with_port(uri: &Uri) -> Uri {
    let (Some("http"), None, Some(host)) = (uri.scheme_str(), uri.port(), uri.host()) else {
        return uri.clone();
    };
    Uri::try_from(format!("http://{host}:80/")).unwrap_or_else(|_| uri.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        task::JoinSet,
    };

    use super::*;
    use crate::web::{About, STALLED_AFTER, Sent, Web, read_whole};

    fn leads(variables: &[(&str, &str)], uri: &'static str) -> Option<String> {
        let variables: Vec<(String, String)> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let proxies = Proxies::named(|name| {
            let mut all = variables.iter();
            all.find(|(found, _)| found == name)
                .map(|(_, value)| value.clone())
        });
        let proxy = proxies.unwrap().before(&Uri::from_static(uri))?;
        Some(proxy.uri().to_string())
    }

    #[test]
    fn the_environment_says_which_proxy_leads_where() {
        let all = [
            ("ALL_PROXY", "socks5h://a:1"),
            ("HTTPS_PROXY", "http://user:hush@b:2"),
            (
                "NO_PROXY",
                "inside.example, 10.0.0.0/8, at.example:8443,.in.example:80, [fd00::1]:9",
            ),
        ];
        let at = |uri| leads(&all, uri);
        assert_eq!(at("https://store.example/x"), Some("http://b:2/".into()));
        assert_eq!(at("http://store.example/x"), Some("socks5h://a:1/".into()));
        for direct in [
            "https://inside.example/x",
            "https://s3.inside.example/x",
            "https://10.1.2.3/x",
            "https://127.0.0.1/x",
            "http://[::1]:80/x",
            "http://localhost/x",
            "http://169.254.169.254/latest",
            "https://at.example:8443/x",
            "https://s3.at.example:8443/x",
            "http://in.example/x",
            "http://a.in.example:80/x",
            "http://[fd00::1]:9/x",
        ] {
            assert_eq!(at(direct), None, "{direct}");
        }
        for other in [
            "https://at.example/x",
            "https://at.example:8444/x",
            "https://that.example:8443/x",
            "https://in.example/x",
            "http://[fd00::1]/x",
        ] {
            assert!(at(other).is_some(), "{other}");
        }
        assert_eq!(leads(&[], "https://store.example/x"), None);
    }

    #[test]
    fn what_is_no_proxy_is_refused_and_not_shown() {
        for address in ["ftp://me:hush@h", "https://me:hush@h:3128", "me:hush@h h"] {
            let error = Proxies::named(|name| (name == "HTTPS_PROXY").then(|| address.to_owned()));
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }
    /// Requests to a proxy while it ran.
    #[derive(Default)]
    struct Asked {
        heads: Arc<Mutex<Vec<String>>>,
        chores: JoinSet<()>,
    }

    /// Starts a proxy that gives each question this answer. Returns all questions put to it.
    async fn proxy(answer: &'static str) -> (Dialler, String, Asked) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut asked = Asked::default();
        let noted = Arc::clone(&asked.heads);
        asked.chores.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                noted.lock().unwrap().push(head.to_ascii_lowercase());
                stream.write_all(answer.as_bytes()).await.unwrap();
                // An echo server is behind a tunnel.
                if let Ok(byte) = stream.read_u8().await {
                    stream.write_u8(byte).await.unwrap();
                }
            }
        });
        let named = format!("http://user:hush@{address}");
        let proxies = Proxies::named(|name| (name == "ALL_PROXY").then(|| named.clone()));
        (Dialler::through(proxies.unwrap()), address, asked)
    }

    #[tokio::test]
    async fn what_is_encrypted_goes_through_a_tunnel() {
        let answer = "HTTP/1.1 200 Connected\r\n\r\n";
        let (mut dialler, _, asked) = proxy(answer).await;
        let line = dialler.call(Uri::from_static("https://store.example/x"));
        let mut line = line.await.unwrap().into_inner();
        line.write_all(b"!").await.unwrap();
        assert_eq!(line.read_u8().await.unwrap(), b'!');
        assert!(!line.is_through_proxy(), "its requests are the server's");
        let asked = asked.heads.lock().unwrap().concat();
        assert!(
            asked.starts_with("connect store.example:443 http/1.1\r\n"),
            "{asked}"
        );
        // `user:hush`.
        assert!(asked.contains("basic dxnlcjpodxno"), "{asked}");
    }

    #[tokio::test]
    async fn what_is_not_is_asked_of_the_proxy() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
        let (dialler, _, asked) = proxy(answer).await;
        let web = Web::with(dialler, None).unwrap();
        let about = About::reading("read", "http://store.example/x".to_owned());
        let request = http::Request::get("http://store.example/x").body(Sent::nothing());
        let answer = web.send(request.unwrap(), &about, STALLED_AFTER).await;
        let body = read_whole(answer.unwrap().into_body(), &about).await;
        assert_eq!(&body.unwrap()[..], b"hi");
        let asked = asked.heads.lock().unwrap().concat();
        assert!(
            asked.starts_with("get http://store.example/x http/1.1\r\n"),
            "{asked}"
        );
        assert!(
            asked.contains("proxy-authorization: basic dxnlcjpodxno"),
            "{asked}"
        );
    }

    #[tokio::test]
    async fn a_login_that_is_wanted_is_said() {
        let answer = "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
        let (_, address, _asked) = proxy(answer).await;
        let named = format!("http://{address}");
        let proxies = Proxies::named(|name| (name == "ALL_PROXY").then(|| named.clone()));
        let mut dialler = Dialler::through(proxies.unwrap());
        let refused = dialler.call(Uri::from_static("https://store.example/x"));
        let cause = refused.await.unwrap_err().to_string();
        assert!(cause.contains(LOGIN_WANTED), "{cause}");
    }

    #[tokio::test]
    async fn a_refusal_names_the_proxy_and_no_secret() {
        let answer = "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
        let (mut dialler, address, _asked) = proxy(answer).await;
        let refused = dialler.call(Uri::from_static("https://store.example/x"));
        let cause = refused.await.unwrap_err().to_string();
        assert!(
            cause.contains(&address) && !cause.contains("hush"),
            "{cause}"
        );
    }
}
