//! Requests to a service as any program could make them.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use crate::support::processes::{Service, text};

/// Sends raw bytes and reads the answer until the connection closes. With `ends` it closes its
/// sending side, which a server may take for the client's end, so use it for nonsense only.
pub fn raw(service: &Service, bytes: &[u8], ends: bool) -> String {
    let address = service.url.trim_start_matches("http://");
    let mut connection = TcpStream::connect(address).unwrap();
    connection
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    connection.write_all(bytes).unwrap();
    if ends {
        connection.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer);
    text(&answer)
}

pub fn ask(service: &Service, method: &str, path: &str, token: Option<&str>, body: &str) -> String {
    let authorization = token.map_or_else(String::new, |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    raw(service, request.as_bytes(), false)
}
