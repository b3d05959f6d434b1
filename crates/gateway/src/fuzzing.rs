//! Entry points for the fuzz targets alone, to the parsers of input from clients and gateways. Each
//! accepts any bytes, and panics if an invariant fails.

use std::{
    io::Write as _,
    net::{Shutdown, TcpListener, TcpStream},
};

use crate::{
    braid,
    greeting::{self, Greeting},
};

/// Parses frames of a braid one after the other.
pub fn gateway_frames(data: &[u8]) {
    braid::try_frames(data);
}

/// Parses a client's greeting, by SOCKS5 or HTTP, with every token accepted. It is sent over a
/// connection, as clients do.
pub fn gateway_greeting(data: &[u8]) {
    let connected = || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        client.write_all(data)?;
        client.shutdown(Shutdown::Write)?;
        server.set_nonblocking(true)?;
        Ok::<_, std::io::Error>((client, server))
    };
    let Ok((_client, server)) = connected() else {
        return;
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    else {
        return;
    };
    let read = runtime.block_on(async {
        let server = tokio::net::TcpStream::from_std(server)?;
        greeting::read(server, &|_| true).await
    });
    if let Ok(Greeting::Stream(wish, end)) = read {
        assert!(end.early.len() < data.len(), "more was read than was there");
        let shown = wish.target.to_string();
        assert!(!shown.contains(char::is_control), "it is more than a line");
    }
}
