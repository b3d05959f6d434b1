use alloc::{sync::Arc, vec::Vec};
use core::ops::{Deref, DerefMut};
use posthaste_types::{Malformed, Record};

/// Value that many owners have alike: equal ones share memory. It reads and writes as if each had
/// its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shared<T>(Arc<T>);

impl<T: PartialEq> Shared<T> {
    /// Shares with the first of these that is equal.
    pub(crate) fn share<'a>(&mut self, others: impl IntoIterator<Item = &'a Self>)
    where
        T: 'a,
    {
        if let Some(alike) = others.into_iter().find(|other| *other == self) {
            self.0 = Arc::clone(&alike.0);
        }
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Record> Record for Shared<T> {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        T::read(input).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn what_is_alike_is_shared_until_one_changes() {
        let of = |text: &str| Shared::from(String::from(text));
        let (one, mut two, mut three) = (of("a"), of("a"), of("b"));
        two.share([&of("c"), &one]);
        three.share([&one]);
        assert!(Arc::ptr_eq(&one.0, &two.0) && *three == "b");
        two.push('!');
        assert_eq!((&**one, &**two), ("a", "a!"));
        assert_eq!(Shared::<String>::from_bytes(&two.to_bytes()), Ok(two));
    }
}
