//! Options of a stage-out beyond its deadline.

use clap::{Args, ValueEnum};
use posthaste_api as api;
use posthaste_core::contract::{Priority, Reserve};
use posthaste_types::ByteRate;

/// Whose a request is, among whom what is left over is shared.
#[derive(Debug, Clone, Args)]
pub struct AccountArguments {
    /// On whose account it goes: projects share evenly what is left over
    #[arg(
        long,
        value_name = "NAME",
        env = "POSTHASTE_PROJECT",
        hide_env_values = true
    )]
    pub project: Option<String>,
    /// Whose it is: users of a project share evenly
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub owner: Option<String>,
}

/// Wishes beyond the deadline.
#[derive(Debug, Args)]
pub struct WishesArguments {
    /// Priority when not all can be served in time: low, normal, high, urgent, or -9 to 9;
    /// promises to others are kept whatever it is. Below normal, what is sent also makes way for
    /// everybody else on the network, until its deadline is at risk
    #[arg(
        long,
        value_name = "PRIORITY",
        allow_hyphen_values = true,
        default_value_t
    )]
    priority: Priority,
    #[command(flatten)]
    account: AccountArguments,
    /// Choose the code: any so many depots may be lost
    #[arg(long, value_name = "DEPOTS", conflicts_with_all = ["code", "durability"])]
    survive: Option<u32>,
    /// Choose the code: the data is kept with this chance, by what the depots lost so far
    #[arg(long, value_name = "PERCENT", conflicts_with = "code")]
    durability: Option<f64>,
    /// Where there is no time for all of the code, it suffices by the deadline that any so many depots
    /// may be lost; the rest of the code follows
    #[arg(long, value_name = "DEPOTS")]
    safe_with: Option<u32>,
    /// Moment at which what depots lost is made again: eager, or lazy: when one more loss is all that is survived,
    /// where the source stays
    #[arg(long, value_enum, default_value_t)]
    repair: Repair,
    /// Most that it may cost in dollars, sending and keeping it together. Nothing that depots charge for goes on to
    /// destinations then; the answer says so [default: any]
    #[arg(long, value_name = "USD", value_parser = parse_dollars, allow_negative_numbers = true)]
    budget: Option<f64>,
    /// Most to send for it a second, over all paths together: 10M, 1.5G [default: no limit]
    #[arg(long, value_name = "RATE")]
    bwlimit: Option<ByteRate>,
    /// Rule by which rate is reserved for it on a circuit: auto, where its deadline asks for it and that pays; always,
    /// or never
    #[arg(long, value_name = "WHEN", default_value_t)]
    reserve: Reserve,
    /// Depots that must hold their share of it, a fragment of every chunk, before it is safe; --via need not
    /// name them too
    #[arg(long, value_name = "DEPOT,…", value_delimiter = ',')]
    pin: Vec<String>,
    /// Depots that may hold none of it
    #[arg(long, value_name = "DEPOT,…", value_delimiter = ',')]
    without: Vec<String>,
}

/// Moment at which what is lost is made again.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Repair {
    /// At once
    #[default]
    Eager,
    /// Wait until one more loss is all that a chunk survives
    Lazy,
}

impl WishesArguments {
    /// Returns the depots that must hold some of it.
    pub fn pinned(&self) -> &[String] {
        &self.pin
    }

    /// Builds the options for the service.
    pub fn resolve(&self) -> api::Wishes {
        let is_normal = self.priority == Priority::default();
        api::Wishes {
            priority: (!is_normal).then(|| self.priority.to_string()),
            owner: self.account.owner.clone(),
            project: self.account.project.clone(),
            survive: self.survive,
            durability_percent: self.durability,
            safe_with: self.safe_with,
            repair: match self.repair {
                Repair::Eager => None,
                Repair::Lazy => Some("lazy".into()),
            },
            budget_usd: self.budget,
            rate_bytes_per_s_max: self.bwlimit.map(ByteRate::get),
            reserve: (self.reserve != Reserve::Auto).then(|| self.reserve.to_string()),
            pin: self.pin.clone(),
            without: self.without.clone(),
            lent: Vec::new(),
        }
    }
}
/// Parses an amount of dollars.
///
/// # Errors
/// Returns a line that shows the format: an invalid number must not count as no limit.
pub fn parse_dollars(text: &str) -> Result<f64, String> {
    let amount = text.trim_start_matches('$').parse::<f64>().ok();
    let amount = amount.filter(|usd| usd.is_finite() && *usd >= 0.0);
    amount.ok_or_else(|| format!("`{text}` is no amount of dollars: write 1.50"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_amount_of_dollars_is_refused() {
        assert_eq!(parse_dollars("1.50"), Ok(1.5));
        assert_eq!(parse_dollars("$2"), Ok(2.0));
        for wrong in ["nan", "inf", "-1", "", "1,5"] {
            assert!(parse_dollars(wrong).is_err(), "{wrong}");
        }
    }
}
