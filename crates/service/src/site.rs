//! Tables of the settings file beside the commands' options: logins and quotas.

use serde::Deserialize;

use crate::{
    oidc::{self, Oidc},
    quotas::{self, QUOTAS_MAX, Quota},
};

/// Message of an error, and its byte offset.
pub type Complaint = (usize, String);

/// Tables of the settings file that belong to no command.
pub const SITE_TABLES: [&str; 2] = ["oidc", "quota"];

/// Contents of these tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    /// Identity provider and its grants, if any.
    pub oidc: Option<Oidc>,
    /// Users' quotas; unlimited without.
    pub quotas: Vec<Quota>,
}

/// Tables of commands are ignored here.
#[derive(Debug, Deserialize)]
struct Written {
    oidc: Option<oidc::Written>,
    #[serde(default)]
    quota: Vec<quotas::Written>,
}

/// Parses these tables of a file.
///
/// # Errors
/// The error and its position.
pub fn read_site(text: &str) -> Result<Site, Complaint> {
    let written: Written = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let said = error.message().split_whitespace();
        (at, said.collect::<Vec<_>>().join(" "))
    })?;
    if written.quota.len() > QUOTAS_MAX {
        return Err((0, format!("there are more than {QUOTAS_MAX} quotas")));
    }
    let mut quotas: Vec<Quota> = Vec::new();
    for quota in written.quota {
        let at = quota.at();
        let quota = quota.understand()?;
        if quotas.iter().any(|known| known.is_of_same(&quota)) {
            return Err((at, "this user has a quota already".to_owned()));
        }
        quotas.push(quota);
    }
    Ok(Site {
        quotas,
        oidc: written.oidc.map(oidc::Written::understand).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_with_where() {
        let line = |text: &str| {
            let (at, why) = read_site(text).unwrap_err();
            (1 + text[..at].matches('\n').count(), why)
        };
        let (at, why) = line(
            "[serve]\nlisten = 1\n[oidc]\nissuer = \"http://id.example\"\nclient_id = \"p\"\n",
        );
        assert_eq!(at, 4);
        assert!(why.contains("neither https"), "{why}");
        let start = "[oidc]\nissuer = \"https://id.example\"\nclient_id = \"p\"\n";
        let (at, why) = line(&format!("{start}isuer = 1\n"));
        assert_eq!(at, 4);
        assert!(why.contains("unknown field `isuer`"), "{why}");
        let (at, _) = line(&format!("{start}\n[[oidc.grant]]\nscope = \"submit\"\n"));
        assert!((5..=6).contains(&at), "{at}");
        assert_eq!(read_site("[serve]\n"), Ok(Site::default()));
    }

    #[test]
    fn every_setting_is_documented() {
        let page = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/configuration.md"
        );
        let page = std::fs::read_to_string(page).unwrap();
        let start = "[oidc]\nissuer = \"https://id.example\"\nclient_id = \"p\"\n";
        let grant = format!("{start}[[oidc.grant]]\nscope = \"read\"\n");
        for (section, start) in [
            ("## [oidc]", start),
            ("| key of a grant |", &*grant),
            ("## [[quota]]", "[[quota]]\nuser = \"*\"\n"),
        ] {
            let (_, rest) = page.split_once(section).unwrap();
            let section = rest.split("\n## ").next().unwrap();
            // An unknown key is answered with the known ones.
            let (_, why) = read_site(&format!("{start}nonsense = 1\n")).unwrap_err();
            let (_, known) = why.split_once("expected one of").unwrap();
            let known: Vec<_> = known.split('`').skip(1).step_by(2).collect();
            assert!(known.len() >= 3, "{why}");
            for key in known {
                let is_there = [format!("| `{key}`"), format!(", `{key}` |")];
                assert!(is_there.iter().any(|row| section.contains(row)), "{key}");
            }
        }
    }
}
