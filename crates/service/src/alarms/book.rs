//! Alarms as an operator configures them: `alarms.toml`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use http::Uri;
use posthaste_endpoint::{Error, ErrorKind, Result, relay::is_loopback};
use serde::Deserialize;

/// Alarms in one file: each has a task of its own.
pub const ALARMS_MAX: usize = 64;

/// Longest file read, in bytes: people write it by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Longest name of an alarm, in bytes: it names a file.
const NAME_BYTES_MAX: usize = 64;

/// Most recipients of one alarm: a mailing list serves more.
const RECIPIENTS_MAX: usize = 64;

/// Events for notices: each needs a person's action, or ends what an earlier notice reported.
pub(super) const EVENTS: [&str; 24] = [
    "admitted",
    "refused",
    "at-risk",
    "on-time",
    "missed",
    "delivery-at-risk",
    "delivery-on-time",
    "delivery-missed",
    "safe",
    "unsafe",
    "thinned",
    "crowded",
    "purged",
    "released",
    "release-failed",
    "delivered",
    "arrived",
    "cancelled",
    "paused",
    "resumed",
    "failed",
    "depot-down",
    "depot-up",
    "depot-emptied",
];

/// Default events: deadlines at risk and no longer at risk, and data at risk.
const USUAL: [&str; 11] = [
    "refused",
    "at-risk",
    "on-time",
    "missed",
    "delivery-at-risk",
    "delivery-on-time",
    "delivery-missed",
    "unsafe",
    "purged",
    "release-failed",
    "failed",
];

/// Alarm with its recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// Name of the alarm.
    pub name: String,
    /// Names of the selected events.
    pub(super) on: Vec<String>,
    pub(super) way: Way,
}

/// Transport of the notices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    Webhook(Webhook),
    Mail(Mail),
    Command(Vec<String>),
}

/// Destination of signed requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Webhook {
    pub(super) address: Uri,
    /// File with the signing secret.
    pub(super) secret_file: PathBuf,
    pub(super) ca_file: Option<PathBuf>,
}

/// Recipients of a mail, and its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mail {
    pub(super) to: Vec<String>,
    pub(super) from: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Tls,
    /// User, and file with the password.
    pub(super) login: Option<(String, PathBuf)>,
    pub(super) ca_file: Option<PathBuf>,
}

/// Protection of a mail on its way to the first server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tls {
    /// TLS from the first byte.
    Implicit,
    /// TLS after `STARTTLS`, and nothing without.
    Started,
    /// None: the mail stays on this machine, and no password is sent.
    Off,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    alarm: Vec<One>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    name: String,
    on: Option<Vec<String>>,
    webhook: Option<String>,
    secret_file: Option<PathBuf>,
    mail_to: Option<Vec<String>>,
    mail_from: Option<String>,
    smtp: Option<String>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    command: Option<Vec<String>>,
}

/// Reads alarms from a TOML file. Files that it names are relative to it.
///
/// # Errors
/// Errors of reading; [`ErrorKind::Invalid`] with the line that is wrong.
pub fn read_alarms(path: &Path) -> Result<Vec<Alarm>> {
    let shown = path.display().to_string();
    let failed = |cause| Error::io("read the alarms in", shown.clone(), cause);
    if fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        let error = Error::new(ErrorKind::Invalid, "read the alarms in", shown);
        return Err(error.cause("it is larger than 1 MiB"));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    parse(&text, path.parent().unwrap_or(Path::new("."))).map_err(|why| {
        Error::new(ErrorKind::Invalid, "read the alarms in", shown)
            .cause(why)
            .hint("see docs/operating/alarms.md")
    })
}

fn parse(text: &str, folder: &Path) -> Result<Vec<Alarm>, String> {
    let written: Written = toml::from_str(text).map_err(|cause| {
        let place = cause.span().map(|span| {
            let before = text.get(..span.start).unwrap_or(text);
            format!("line {}: ", before.matches('\n').count() + 1)
        });
        let message = cause.message().trim_end().replace('\n', "; ");
        format!("{}{message}", place.unwrap_or_default())
    })?;
    if written.alarm.len() > ALARMS_MAX {
        return Err(format!("more than {ALARMS_MAX} alarms"));
    }
    let mut alarms: Vec<Alarm> = Vec::with_capacity(written.alarm.len());
    for one in written.alarm {
        let name = one.name.clone();
        let alarm = one
            .into_alarm(folder)
            .map_err(|why| format!("alarm `{name}`: {why}"))?;
        if alarms.iter().any(|other| other.name == name) {
            return Err(format!("alarm `{name}` is there twice"));
        }
        alarms.push(alarm);
    }
    Ok(alarms)
}

impl One {
    fn into_alarm(self, folder: &Path) -> Result<Alarm, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if !(1..=NAME_BYTES_MAX).contains(&self.name.len()) || !self.name.chars().all(plain) {
            return Err(format!(
                "a name has 1 to {NAME_BYTES_MAX} letters, digits, `-` or `_`"
            ));
        }
        let on = self
            .on
            .clone()
            .unwrap_or_else(|| USUAL.map(str::to_owned).into());
        if on.is_empty() {
            return Err("on is empty: nothing would be told".to_owned());
        }
        if let Some(unknown) = on.iter().find(|name| !EVENTS.contains(&name.as_str())) {
            let known = EVENTS.join(", ");
            return Err(format!("nobody is told of `{unknown}`; there are {known}"));
        }
        let name = self.name.clone();
        let way = self.way(folder)?;
        Ok(Alarm { name, on, way })
    }

    fn way(self, folder: &Path) -> Result<Way, String> {
        let of_mail = [
            ("mail_from", self.mail_from.is_some()),
            ("smtp", self.smtp.is_some()),
            ("user", self.user.is_some()),
            ("password_file", self.password_file.is_some()),
        ];
        let of_webhook = [("secret_file", self.secret_file.is_some())];
        let of_both = [("ca_file", self.ca_file.is_some())];
        let foreign = |keys: &[(&str, bool)]| match keys.iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(format!("{key} means nothing here")),
            None => Ok(()),
        };
        match (&self.webhook, &self.mail_to, &self.command) {
            (Some(address), None, None) => {
                foreign(&of_mail)?;
                let secret_file = self.secret_file.ok_or("no secret_file to sign with")?;
                Ok(Way::Webhook(Webhook {
                    address: web_address(address)?,
                    secret_file: folder.join(secret_file),
                    ca_file: self.ca_file.map(|file| folder.join(file)),
                }))
            }
            (None, Some(_), None) => {
                foreign(&of_webhook)?;
                self.mail(folder).map(Way::Mail)
            }
            (None, None, Some(command)) => {
                foreign(&of_mail)?;
                foreign(&of_webhook)?;
                foreign(&of_both)?;
                match command.first() {
                    Some(program) if Path::new(program).is_absolute() => {
                        Ok(Way::Command(command.clone()))
                    }
                    _ => Err("command begins with the whole path of a program".to_owned()),
                }
            }
            (None, None, None) => Err("no webhook, mail_to or command".to_owned()),
            _ => Err("more than one of webhook, mail_to and command".to_owned()),
        }
    }

    fn mail(self, folder: &Path) -> Result<Mail, String> {
        let to = self.mail_to.unwrap_or_default();
        if !(1..=RECIPIENTS_MAX).contains(&to.len()) {
            return Err(format!("mail_to has 1 to {RECIPIENTS_MAX} addresses"));
        }
        let from = self.mail_from.ok_or("no mail_from")?;
        if let Some(wrong) = to.iter().chain([&from]).find(|who| !is_mailbox(who)) {
            return Err(format!("`{wrong}` is no address like ops@example.org"));
        }
        let login = match (self.user, self.password_file) {
            (Some(user), Some(file)) => Some((user, folder.join(file))),
            (None, None) => None,
            (Some(_), None) => return Err("a user without a password_file".to_owned()),
            (None, Some(_)) => return Err("a password_file without a user".to_owned()),
        };
        let (host, port, tls) = mail_server(&self.smtp.ok_or("no smtp")?, login.is_some())?;
        Ok(Mail {
            to,
            from,
            host,
            port,
            tls,
            login,
            ca_file: self.ca_file.map(|file| folder.join(file)),
        })
    }
}

/// Returns whether an address is valid in an SMTP command: servers judge the rest.
fn is_mailbox(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && !"<>()[],;:\\\"".contains(c);
    text.split_once('@').is_some_and(|(user, host)| {
        !user.is_empty() && !host.is_empty() && text.len() <= 254 && text.chars().all(plain)
    })
}

/// Returns the URL, which must be encrypted: signed notices are confidential too.
fn web_address(text: &str) -> Result<Uri, String> {
    let wrong = || format!("`{text}` is no address that begins with https://");
    let address: Uri = text.parse().map_err(|_| wrong())?;
    let host = address.host().ok_or_else(wrong)?;
    match address.scheme_str() {
        Some("https") => Ok(address),
        Some("http") if is_loopback(host) => Ok(address),
        Some("http") => Err("a webhook beyond this machine begins with https://".to_owned()),
        _ => Err(wrong()),
    }
}

/// Parses host, port and protection of `smtps://HOST[:PORT]` or `smtp://HOST[:PORT]`.
fn mail_server(text: &str, has_login: bool) -> Result<(String, u16, Tls), String> {
    let wrong = || {
        format!(
            "`{text}` is not written like smtps://mail.example.org or smtp://mail.example.org:587"
        )
    };
    let address: Uri = text.parse().map_err(|_| wrong())?;
    let authority = address.authority().ok_or_else(wrong)?;
    if authority.as_str().contains('@') {
        return Err("user and password_file stand beside smtp, not in it".to_owned());
    }
    if !matches!(address.path(), "" | "/") {
        return Err(wrong());
    }
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let (port, tls) = match address.scheme_str() {
        Some("smtps") => (465, Tls::Implicit),
        Some("smtp") if is_loopback(&host) && !has_login => (25, Tls::Off),
        Some("smtp") => (587, Tls::Started),
        _ => return Err(wrong()),
    };
    Ok((host, authority.port_u16().unwrap_or(port), tls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Alarm>, String> {
        parse(text, Path::new("/etc/posthaste"))
    }

    #[test]
    fn alarms_are_read_as_they_are_written() {
        let alarms = read(
            r#"
            [[alarm]]
            name = "pager"
            on = ["at-risk"]
            webhook = "https://hooks.example.org/x"
            secret_file = "pager.secret"

            [[alarm]]
            name = "ops"
            mail_to = ["ops@example.org"]
            mail_from = "posthaste@example.org"
            smtp = "smtp://mail.example.org"
            user = "posthaste"
            password_file = "/run/smtp"

            [[alarm]]
            name = "siren"
            command = ["/usr/local/bin/siren", "--loud"]
            "#,
        )
        .unwrap();
        let [pager, ops, siren] = &alarms[..] else {
            panic!("{alarms:?}");
        };
        assert_eq!(pager.on, ["at-risk"]);
        let Way::Webhook(webhook) = &pager.way else {
            panic!("{pager:?}");
        };
        assert_eq!(
            webhook.secret_file,
            Path::new("/etc/posthaste/pager.secret")
        );
        let Way::Mail(mail) = &ops.way else {
            panic!("{ops:?}");
        };
        assert_eq!((mail.port, mail.tls), (587, Tls::Started));
        assert_eq!(mail.login.as_ref().unwrap().1, Path::new("/run/smtp"));
        assert_eq!(siren.on, USUAL);
        assert!(USUAL.iter().all(|name| EVENTS.contains(name)));
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        let hook = "webhook = \"https://h/\"\nsecret_file = \"s\"";
        let mail = "mail_to = [\"a@b\"]\nmail_from = \"c@d\"";
        let cases = [
            (
                "webhook = \"http://h.example.org/\"\nsecret_file = \"s\"".to_owned(),
                "begins with https://",
            ),
            (
                "webhook = \"hooks\"\nsecret_file = \"s\"".to_owned(),
                "begins with https://",
            ),
            ("webhook = \"https://h/\"".to_owned(), "no secret_file"),
            (
                format!("{hook}\nsmtp = \"smtp://h\""),
                "smtp means nothing here",
            ),
            (
                format!("{hook}\ncommand = [\"/bin/true\"]"),
                "more than one of",
            ),
            (
                format!("{hook}\non = [\"late\"]"),
                "nobody is told of `late`; there are admitted, ",
            ),
            (format!("{hook}\non = []"), "nothing would be told"),
            (
                format!("{hook}\nurl = \"x\""),
                "line 5: unknown field `url`",
            ),
            ("command = [\"siren\"]".to_owned(), "whole path"),
            (String::new(), "no webhook, mail_to or command"),
            (mail.to_owned(), "no smtp"),
            (
                format!("{mail}\nsmtp = \"mail.example.org\""),
                "not written like smtps://",
            ),
            (
                format!("{mail}\nsmtp = \"smtps://u:p@h\""),
                "beside smtp, not in it",
            ),
            (
                format!("{mail}\nsmtp = \"smtps://h\"\nuser = \"u\""),
                "without a password_file",
            ),
            (
                "mail_to = [\"ops\\n@b\"]\nmail_from = \"c@d\"\nsmtp = \"smtps://h\"".to_owned(),
                "is no address",
            ),
        ];
        for (lines, why) in cases {
            let said = read(&format!("[[alarm]]\nname = \"a\"\n{lines}")).unwrap_err();
            assert!(said.contains(why), "{lines}: {said}");
            assert!(
                said.contains("alarm `a`") || said.contains("line "),
                "{said}"
            );
        }
        let twice = "[[alarm]]\nname = \"a\"\ncommand = [\"/bin/true\"]\n";
        assert!(read(&twice.repeat(2)).unwrap_err().contains("there twice"));
        assert!(read(&twice.replace('a', "a/b")).is_err());
    }

    #[test]
    fn a_mail_stays_in_the_clear_on_this_machine_alone() {
        let of = |text| mail_server(text, false).unwrap();
        assert_eq!(of("smtp://127.0.0.1"), ("127.0.0.1".into(), 25, Tls::Off));
        assert_eq!(of("smtp://[::1]:2525"), ("::1".into(), 2525, Tls::Off));
        assert_eq!(
            of("smtp://10.0.0.1:25"),
            ("10.0.0.1".into(), 25, Tls::Started)
        );
        assert_eq!(
            of("smtps://localhost"),
            ("localhost".into(), 465, Tls::Implicit)
        );
        let with_login = mail_server("smtp://localhost", true).unwrap();
        assert_eq!(with_login, ("localhost".into(), 587, Tls::Started));
    }
}
