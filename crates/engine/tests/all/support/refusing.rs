//! Answers of endpoint models to calls they do not support.

use posthaste_endpoint::{Boxed, Error, ErrorKind, Result};

/// Answers what nobody should ask.
pub fn no<T: Send + 'static>() -> Boxed<'static, Result<T>> {
    Box::pin(async { Err(Error::new(ErrorKind::Unsupported, "ask", "a model")) })
}

/// Refuses the calls of an endpoint that write, or read pieces of files.
macro_rules! refuse_the_rest {
    () => {
        fn open<'a>(
            &'a self,
            _: &'a [u8],
            _: &'a posthaste_endpoint::Entry,
        ) -> posthaste_endpoint::Boxed<
            'a,
            posthaste_endpoint::Result<std::sync::Arc<dyn posthaste_endpoint::Reader>>,
        > {
            $crate::support::refusing::no()
        }

        fn read_link<'a>(
            &'a self,
            _: &'a [u8],
        ) -> posthaste_endpoint::Boxed<'a, posthaste_endpoint::Result<Vec<u8>>> {
            $crate::support::refusing::no()
        }

        fn put<'a>(
            &'a self,
            _: &'a [u8],
            _: &'a posthaste_endpoint::FileSpec,
            _: Vec<bytes::Bytes>,
            _: posthaste_endpoint::Checksum,
        ) -> posthaste_endpoint::Boxed<'a, posthaste_endpoint::Result<()>> {
            $crate::support::refusing::no()
        }

        fn create<'a>(
            &'a self,
            _: &'a [u8],
            _: &'a posthaste_endpoint::FileSpec,
        ) -> posthaste_endpoint::Boxed<
            'a,
            posthaste_endpoint::Result<std::sync::Arc<dyn posthaste_endpoint::Writer>>,
        > {
            $crate::support::refusing::no()
        }

        fn make_link<'a>(
            &'a self,
            _: &'a [u8],
            _: &'a [u8],
            _: &'a posthaste_endpoint::FileSpec,
        ) -> posthaste_endpoint::Boxed<'a, posthaste_endpoint::Result<()>> {
            $crate::support::refusing::no()
        }

        fn make_parents(&self) -> posthaste_endpoint::Boxed<'_, posthaste_endpoint::Result<()>> {
            $crate::support::refusing::no()
        }

        fn make_directory<'a>(
            &'a self,
            _: &'a [u8],
        ) -> posthaste_endpoint::Boxed<'a, posthaste_endpoint::Result<bool>> {
            $crate::support::refusing::no()
        }

        fn seal_directory<'a>(
            &'a self,
            _: &'a [u8],
            _: &'a posthaste_endpoint::Entry,
            _: bool,
        ) -> posthaste_endpoint::Boxed<'a, posthaste_endpoint::Result<()>> {
            $crate::support::refusing::no()
        }
    };
}
