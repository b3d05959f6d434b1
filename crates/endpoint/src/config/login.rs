//! Logins for web and FTP servers: from a profile, the address's user, or `~/.netrc`.

use std::path::PathBuf;

use super::{
    home, no_profile,
    profiles::{Profile, Secret},
    read_small_file, refuse_open_to_others, variable,
};
use crate::{
    Error, ErrorKind, Result,
    access::Chosen,
    web::bearer::{TokenSource, of_refresh_token},
};

/// Credentials for a server.
pub(crate) enum Login {
    /// User with a password.
    Password {
        /// Name of the user.
        user: String,
        /// Password.
        password: Secret,
    },
    /// Bearer token.
    Token(TokenSource),
}

/// Returns the credentials for `host`: the profile's, else those of `~/.netrc`.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an unknown profile or half a pair; [`ErrorKind::PermissionDenied`] if
/// others may read `~/.netrc`.
pub(crate) fn login_for(
    host: &str,
    user: Option<&str>,
    chosen: Option<&Chosen>,
) -> Result<Option<Login>> {
    if let Some(chosen) = chosen {
        let profile = chosen
            .ours
            .as_ref()
            .ok_or_else(|| no_profile(&chosen.name))?;
        if let Some(source) = token_source(profile, &chosen.name)? {
            return Ok(Some(Login::Token(source)));
        }
        match (user.or(profile.user.as_deref()), &profile.password) {
            (Some(user), Some(password)) => {
                return Ok(Some(Login::Password {
                    user: user.to_owned(),
                    password: password.clone(),
                }));
            }
            (None, Some(_)) => {
                return Err(Error::new(ErrorKind::Invalid, "use profile", &*chosen.name)
                    .cause("it has a password but no user"));
            }
            (_, None) => {}
        }
    }
    netrc(host, user)
}

/// Returns the source of the profile's bearer tokens, if it names one.
///
/// # Errors
/// [`ErrorKind::Invalid`] if a field for a refresh token is missing.
pub(crate) fn token_source(profile: &Profile, name: &str) -> Result<Option<TokenSource>> {
    let wrong = |cause| Error::new(ErrorKind::Invalid, "use profile", name).cause(cause);
    if let Some(token) = &profile.token {
        return Ok(Some(TokenSource::Fixed(token.clone())));
    }
    if let Some(path) = &profile.token_file {
        return Ok(Some(TokenSource::File(path.clone())));
    }
    if !profile.token_command.is_empty() {
        return Ok(Some(TokenSource::Command(profile.token_command.clone())));
    }
    let Some(refresh_token) = &profile.refresh_token else {
        return Ok(None);
    };
    let (Some(client_id), Some(token_uri)) = (&profile.client_id, &profile.token_uri) else {
        return Err(wrong(
            "it has a refresh token without client_id or token_uri",
        ));
    };
    if !token_uri.starts_with("https://") && !token_uri.starts_with("http://127.0.0.1:") {
        return Err(wrong(
            "its token_uri has no TLS, and would give the refresh token away",
        ));
    }
    Ok(Some(of_refresh_token(
        refresh_token.clone(),
        client_id.clone(),
        profile.client_secret.clone(),
        token_uri.clone(),
    )))
}

fn netrc(host: &str, user: Option<&str>) -> Result<Option<Login>> {
    let path = variable("NETRC")
        .map(PathBuf::from)
        .or_else(|| Some(home()?.join(".netrc")));
    let Some(path) = path.filter(|path| path.is_file()) else {
        return Ok(None);
    };
    let shown = path.to_string_lossy().into_owned();
    let fail = |cause| Error::io("read passwords from", &*shown, cause);
    let text = read_small_file(&path).map_err(fail)?;
    let Some((user, password)) = find(&String::from_utf8_lossy(&text), host, user) else {
        return Ok(None);
    };
    let found = std::fs::metadata(&path).map_err(fail)?;
    refuse_open_to_others("use passwords from", &path, &found)?;
    Ok(Some(Login::Password {
        user,
        password: Secret::new(password),
    }))
}

/// Finds the entry for `host` in the text of a `.netrc` (in the form of ftp(1)): words, with
/// `macdef` up to an empty line left out.
fn find(text: &str, host: &str, wanted: Option<&str>) -> Option<(String, String)> {
    let mut kept = String::new();
    let mut in_macro = false;
    for line in text.lines() {
        in_macro = (in_macro && !line.trim().is_empty()) || line.trim_start().starts_with("macdef");
        if !in_macro && !line.trim_start().starts_with('#') {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    let mut words = kept.split_whitespace();
    let mut is_ours = false;
    let (mut user, mut password) = (None, None);
    let complete = |is_ours: bool, user: &Option<&str>, password: &Option<&str>| {
        let user = user.or(wanted)?;
        let fits = is_ours && wanted.is_none_or(|wanted| wanted == user);
        fits.then(|| Some((user.to_owned(), (*password)?.to_owned())))?
    };
    while let Some(word) = words.next() {
        match word {
            "machine" | "default" => {
                if let Some(found) = complete(is_ours, &user, &password) {
                    return Some(found);
                }
                (user, password) = (None, None);
                is_ours = word == "default" || words.next() == Some(host);
            }
            "login" => user = words.next(),
            "password" => password = words.next(),
            "account" => _ = words.next(),
            _ => {}
        }
    }
    complete(is_ours, &user, &password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netrc_is_read_as_ftp_reads_it() {
        let text = "# mine\nmachine a login me password p1\nmachine b\n\tlogin you\n\tpassword p2\n\
            macdef init\ncd machine c password no\n\ndefault login anonymous password me@\n";
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(find(text, "a", None), pair("me", "p1"));
        assert_eq!(find(text, "b", Some("you")), pair("you", "p2"));
        assert_eq!(find(text, "c", None), pair("anonymous", "me@"));
        assert_eq!(find(text, "a", Some("other")), None);
        assert_eq!(find("machine a password p", "a", Some("x")), pair("x", "p"));
        assert_eq!(find("machine a login me", "a", None), None);
        assert_eq!(find("", "a", None), None);
    }
}
