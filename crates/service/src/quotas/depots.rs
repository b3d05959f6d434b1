//! Depots that users register for themselves.

use std::sync::PoisonError;

use posthaste_endpoint::{Error, ErrorKind, Result};

use super::{EVERYBODY, Quota, Quotas};
use crate::driver::Centre;

/// Most depots of an owner whose quota says nothing of them.
const DEPOTS_USUAL: u64 = 4;

/// An owner's turn to add a depot. Each has one at a time, so that none exceeds its quota by adding
/// several at once, or has the service connect to many addresses.
pub(crate) struct Turn<'a> {
    quotas: &'a Quotas,
    owner: String,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let adding = self.quotas.adding.lock();
        let mut adding = adding.unwrap_or_else(PoisonError::into_inner);
        adding.remove(&self.owner);
    }
}

impl Quotas {
    /// Reserves room for a depot of an owner; one that is there has it already.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while another depot of the owner is being added;
    /// [`ErrorKind::PermissionDenied`] if there are as many as there may be.
    pub(crate) fn reserve_depot<'a>(
        &'a self,
        centre: &Centre,
        owner: &str,
        name: &str,
    ) -> Result<Turn<'a>> {
        let refused =
            |kind, cause: String| Error::new(kind, "add", format!("depot {name}")).cause(cause);
        let is_first = {
            let adding = self.adding.lock();
            let mut adding = adding.unwrap_or_else(PoisonError::into_inner);
            adding.insert(owner.to_owned())
        };
        if !is_first {
            let cause = format!("another depot of {owner} is being added");
            return Err(refused(ErrorKind::Busy, cause).hint("try again in a moment"));
        }
        let turn = Turn {
            quotas: self,
            owner: owner.to_owned(),
        };
        let most = depots_max(&self.books().limits, owner);
        let all = centre.depots.all();
        let others = all.iter().filter(|depot| {
            depot.record.owner.as_deref() == Some(owner) && depot.record.name != name
        });
        let has = others.count() as u64;
        if has < most {
            return Ok(turn);
        }
        let cause = format!("{owner} has {has} depots of their own, and {most} are the most");
        Err(refused(ErrorKind::PermissionDenied, cause).hint(
            "remove one with `posthaste depot remove`; an operator sets the most in [[quota]]",
        ))
    }
}

/// Returns how many depots a user may have.
fn depots_max(limits: &[Quota], owner: &str) -> u64 {
    let of = |name: &str| limits.iter().find(|quota| quota.user == name);
    let quota = of(owner).or_else(|| of(EVERYBODY));
    quota.and_then(|quota| quota.depots).unwrap_or(DEPOTS_USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_as_many_depots_as_their_quota_says_or_the_usual_number() {
        let read = |text: &str| crate::site::read_site(text).unwrap().quotas;
        let limits = read(
            "[[quota]]\nuser = \"*\"\ndepots = 1\n[[quota]]\nuser = \"olga\"\ndepots = 0\n\
             [[quota]]\nuser = \"alice\"\n",
        );
        let of = |user: &str| depots_max(&limits, user);
        assert_eq!([of("bob"), of("olga"), of("alice")], [1, 0, 4]);
        assert_eq!(depots_max(&[], "bob"), 4);
    }
}
