//! A depot that lends disk: HTTP/1.1 over TLS 1.3, chunks verified before they count.
