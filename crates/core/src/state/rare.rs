use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use core::ops::{Deref, DerefMut};
use posthaste_types::{Malformed, Record};

/// Value with a default that most instances share.
pub(crate) trait Blank: PartialEq + Clone + 'static {
    /// Default.
    const BLANK: &'static Self;
}

impl<K: Ord + Clone + 'static, V: PartialEq + Clone + 'static> Blank for BTreeMap<K, V> {
    const BLANK: &'static Self = &Self::new();
}

impl<T: PartialEq + Clone + 'static> Blank for Vec<T> {
    const BLANK: &'static Self = &Self::new();
}

/// Value that few of many instances have: for the others it takes one word of memory. It reads and
/// writes as if it were always present.
#[derive(Debug, Clone)]
pub(crate) struct Rare<T>(Option<Box<T>>);

impl<T: Blank> Rare<T> {
    /// Frees its memory if it is the default again.
    pub(crate) fn settle(&mut self) {
        if self.0.as_deref() == Some(T::BLANK) {
            self.0 = None;
        }
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Blank> From<T> for Rare<T> {
    fn from(value: T) -> Self {
        Self((value != *T::BLANK).then(|| Box::new(value)))
    }
}

impl<T: Blank> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::BLANK)
    }
}

impl<T: Blank> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_with(|| Box::new(T::BLANK.clone()))
    }
}

impl<T: Blank> PartialEq for Rare<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Blank + Eq> Eq for Rare<T> {}

impl<T: Blank + Record> Record for Rare<T> {
    fn write(&self, out: &mut Vec<u8>) {
        let some = self.0.as_deref().filter(|value| *value != T::BLANK);
        some.is_some().write(out);
        if let Some(value) = some {
            value.write(out);
        }
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Option::<T>::read(input)?.map_or_else(Self::default, Self::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Blank for u64 {
        const BLANK: &'static Self = &7;
    }

    #[test]
    fn what_is_blank_takes_no_memory_and_is_read_as_if_it_were_there() {
        let mut rare = Rare::default();
        assert_eq!((*rare, rare.0.is_none()), (7, true));
        *rare += 1;
        assert_eq!(
            (*rare, Rare::from_bytes(&rare.to_bytes()).unwrap()),
            (8, rare.clone())
        );
        *rare -= 1;
        assert_eq!((rare.clone(), rare.0.is_some()), (Rare::default(), true));
        assert_eq!(rare.to_bytes(), Rare::<u64>::default().to_bytes());
        rare.settle();
        assert!(rare.0.is_none() && Rare::from(7_u64).0.is_none());
    }
}
