//! A server with scripted answers that no real one gives.

use std::{net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Request of a client.
#[derive(Debug, Clone)]
pub struct Asked {
    /// `GET` and so on.
    pub method: String,
    /// The path with the query.
    pub target: String,
    /// First and last byte of the requested range.
    pub range: Option<(usize, usize)>,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, if its length is given.
    pub body: Vec<u8>,
}

impl Asked {
    /// Returns one of its headers.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(found, _)| found == name)?;
        Some(value)
    }
}

/// Answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// 200 and so on.
    pub status: u16,
    /// Headers with their ends of lines.
    pub headers: String,
    /// Left out after HEAD.
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns an answer of these fields.
    pub fn new(status: u16, headers: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: headers.to_owned(),
            body: body.into(),
        }
    }

    /// Returns no answer: the connection ends after the question.
    pub fn lost() -> Self {
        Self::new(0, "", "")
    }

    /// Returns an answer with the length of its body.
    pub fn sized(status: u16, headers: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let headers = format!("{headers}content-length: {}\r\n", body.len());
        Self::new(status, &headers, body)
    }
}

/// Answers given after the head alone.
type Early = Box<dyn Fn(&Asked) -> Option<Answer> + Send + Sync>;

/// A server with scripted answers, on one connection for each request.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _chores: JoinSet<()>,
}

impl Server {
    /// Listens on a port of loopback.
    ///
    /// # Panics
    /// Panics if it can't.
    pub async fn start(answers: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_door(|_| None, answers).await
    }

    /// Listens, without support of `Expect`.
    ///
    /// # Panics
    /// Panics if it can't listen.
    pub async fn start_silent(answers: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::listen(None, answers).await
    }

    /// Listens, and may answer before the body of a client that asks first (`Expect`).
    ///
    /// # Panics
    /// Panics if it can't listen.
    pub async fn start_door(
        early: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static,
        answers: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Some(Box::new(early)), answers).await
    }

    async fn listen(
        early: Option<Early>,
        answers: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answers = Arc::new((early, answers));
        let mut chores = JoinSet::new();
        chores.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let answers = Arc::clone(&answers);
                // The client may close before the answer has ended.
                connections.spawn(async move {
                    let (early, answers) = &*answers;
                    let _ = converse(stream, early.as_ref(), answers).await;
                });
            }
        });
        Self {
            address,
            _chores: chores,
        }
    }

    /// Address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its address, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn converse(
    mut stream: TcpStream,
    early: Option<&Early>,
    answers: &(dyn Fn(&Asked) -> Answer + Send + Sync),
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap().split(' ');
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut asked = Asked {
        method: words.next().unwrap().to_owned(),
        target: words.next().unwrap().to_owned(),
        range: None,
        headers,
        body: Vec::new(),
    };
    let range = asked.header("range").or(asked.header("x-ms-range"));
    asked.range = range.and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    let length = asked.header("content-length").map(str::parse::<usize>);
    let length = length.map_or(0, |length| length.unwrap());
    if let Some(early) = early.filter(|_| asked.header("expect").is_some()) {
        if let Some(answer) = early(&asked) {
            return reply(stream, &asked, answer).await;
        }
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    asked.body = vec![0; length];
    stream.read_exact(&mut asked.body).await?;
    let answer = answers(&asked);
    reply(stream, &asked, answer).await
}

async fn reply(mut stream: TcpStream, asked: &Asked, answer: Answer) -> std::io::Result<()> {
    if answer.status == 0 {
        return Ok(());
    }
    let (status, headers) = (answer.status, answer.headers);
    let mut text =
        format!("HTTP/1.1 {status} So\r\n{headers}connection: close\r\n\r\n").into_bytes();
    if asked.method != "HEAD" {
        text.extend(answer.body);
    }
    stream.write_all(&text).await?;
    stream.shutdown().await
}
