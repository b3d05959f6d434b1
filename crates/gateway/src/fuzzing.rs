//! Ways into what reads what clients and other gateways send, for the fuzz targets alone. Each takes any bytes, and panics
//! when something does not hold that must.

use std::{
    io::Write as _,
    net::{Shutdown, TcpListener, TcpStream},
};

use crate::{
    braid,
    greeting::{self, Greeting},
};

/// Frames of a braid, one after the other.
pub fn gateway_frames(data: &[u8]) {
    braid::try_frames(data);
}

/// What a client says first, by SOCKS5 or HTTP; every token is good. It is sent over a connection, as clients do.
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
