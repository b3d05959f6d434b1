//! An FTP server that follows the protocol except for one habit.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Deviation of an FTP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FtpHabit {
    /// Accepts REST, and sends from the first byte on.
    PassesOverRest,
    /// Sends some of a file, and reports a complete transfer.
    EndsEarly,
    /// Sends all, and then reports an aborted transfer.
    FailsAtEnd,
    /// Stores all, and then reports an error.
    FailsToStore,
    /// Lists without sizes.
    TellsNoSizes,
    /// Lists without sizes, and answers SIZE without one.
    KnowsNoSizes,
    /// Reports each file 7 bytes shorter, or empty.
    TellsShortSizes,
    /// Ends lists in the middle of a line.
    CutsLists,
    /// Sets no times of directories.
    KeepsNoFolderTimes,
    /// Sets neither times nor modes.
    KeepsNothing,
    /// Sets no times before 1970, and none of a file called `refused`.
    RefusesOldTimes,
    /// Renames, and hangs up before its answer.
    LosesRenames,
    /// Rejects renames.
    RefusesRenames,
    /// Renames nothing, and reports success.
    OnlySaysRenamed,
    /// Loses the renamed file.
    DropsRenamed,
    /// Rejects a rename to an existing name.
    KeepsNames,
    /// Loses the renamed file, keeps the one to be replaced, and reports success.
    KeepsOld,
    /// Sets no modes of names with a tab.
    RefusesTabs,
}

/// Stored files, by path.
type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// An FTP server on loopback, with one folder `/t`.
#[derive(Debug)]
pub struct FtpServer {
    address: SocketAddr,
    files: Files,
    _chores: JoinSet<()>,
}

impl FtpServer {
    /// Listens on a port of loopback, with these files.
    ///
    /// # Panics
    /// Panics if it can't.
    pub async fn start(habit: FtpHabit, files: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let files = files.iter();
        let files = files.map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec()));
        let files: Files = Arc::new(Mutex::new(files.collect()));
        let held = Arc::clone(&files);
        let mut chores = JoinSet::new();
        chores.spawn(async move {
            let mut sessions = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let files = Arc::clone(&held);
                // The client may close at any time.
                sessions.spawn(async move {
                    let _ = Session::new(stream, habit, files).converse().await;
                });
            }
        });
        Self {
            address,
            files,
            _chores: chores,
        }
    }

    /// Returns its address.
    pub fn url(&self) -> String {
        format!("ftp://{}", self.address)
    }

    /// Returns the content of a path.
    ///
    /// # Panics
    /// Panics if a session panicked.
    pub fn held(&self, path: &str) -> Option<Vec<u8>> {
        self.files.lock().unwrap().get(path).cloned()
    }
}

struct Session {
    wire: BufReader<TcpStream>,
    habit: FtpHabit,
    files: Files,
    data: Option<TcpListener>,
    start: usize,
    from: String,
}

impl Session {
    fn new(stream: TcpStream, habit: FtpHabit, files: Files) -> Self {
        Self {
            wire: BufReader::new(stream),
            habit,
            files,
            data: None,
            start: 0,
            from: String::new(),
        }
    }

    async fn say(&mut self, text: &str) -> std::io::Result<()> {
        self.wire.write_all(format!("{text}\r\n").as_bytes()).await
    }

    async fn converse(mut self) -> std::io::Result<()> {
        self.say("220 hello").await?;
        loop {
            let mut line = String::new();
            if self.wire.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let line = line.trim_end();
            let (command, path) = line.split_once(' ').unwrap_or((line, ""));
            match command {
                "RETR" | "STOR" | "MLSD" => self.transfer(command, path).await?,
                _ => {
                    let Some(answer) = self.answer(command, path).await? else {
                        return Ok(());
                    };
                    self.say(&answer).await?;
                }
            }
        }
    }

    /// Returns the answer to a command without data; none if it hangs up.
    async fn answer(&mut self, command: &str, path: &str) -> std::io::Result<Option<String>> {
        let held = self.files.lock().unwrap().get(path).cloned();
        let gone = "550 no such file".to_owned();
        Ok(Some(match command {
            "FEAT" => "211-it can\r\n MLST type*;size*;modify*;UNIX.mode*;\r\n REST STREAM\r\n MFMT\r\n211 so".to_owned(),
            "EPSV" => {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let port = listener.local_addr()?.port();
                self.data = Some(listener);
                format!("229 here (|||{port}|)")
            }
            "REST" => {
                self.start = path.parse().unwrap_or_default();
                "350 from there".to_owned()
            }
            "SIZE" if self.habit == FtpHabit::KnowsNoSizes => "550 not in ASCII mode".to_owned(),
            "SIZE" => held.map_or(gone, |held| format!("213 {}", held.len())),
            "MLST" if path == "/t" => "250-so\r\n type=dir; /t\r\n250 end".to_owned(),
            "MLST" => held.map_or(gone, |held| {
                format!("250-so\r\n {} {path}\r\n250 end", self.facts(path, held.len()))
            }),
            "MFMT" | "SITE" if self.habit == FtpHabit::KeepsNothing => "550 not permitted".to_owned(),
            "MFMT" if path.ends_with(" /t") && self.habit == FtpHabit::KeepsNoFolderTimes => {
                "550 not a plain file".to_owned()
            }
            "MFMT"
                if self.habit == FtpHabit::RefusesOldTimes
                    && (path < "1970" || path.contains("refused")) =>
            {
                "550 no such time".to_owned()
            }
            "SITE" if path.contains('\t') && self.habit == FtpHabit::RefusesTabs => {
                "550 no such name".to_owned()
            }
            "MFMT" => "213 so".to_owned(),
            "DELE" => {
                self.files.lock().unwrap().remove(path);
                held.map_or(gone, |_| "250 gone".to_owned())
            }
            "RNFR" => {
                path.clone_into(&mut self.from);
                held.map_or(gone, |_| "350 to what".to_owned())
            }
            "RNTO" if self.habit == FtpHabit::OnlySaysRenamed => "250 so".to_owned(),
            "RNTO" if matches!(self.habit, FtpHabit::DropsRenamed | FtpHabit::KeepsOld) => {
                self.files.lock().unwrap().remove(&self.from);
                "250 so".to_owned()
            }
            "RNTO" if self.habit == FtpHabit::RefusesRenames => "550 not permitted".to_owned(),
            "RNTO" if self.habit == FtpHabit::KeepsNames && held.is_some() => {
                "550 file exists".to_owned()
            }
            "RNTO" => {
                let mut files = self.files.lock().unwrap();
                let bytes = files.remove(&self.from).unwrap();
                files.insert(path.to_owned(), bytes);
                if self.habit == FtpHabit::LosesRenames {
                    self.habit = FtpHabit::KeepsNothing;
                    return Ok(None);
                }
                "250 so".to_owned()
            }
            _ => "200 as you like".to_owned(),
        }))
    }

    fn facts(&self, path: &str, mut size: usize) -> String {
        if self.habit == FtpHabit::TellsShortSizes {
            size = size.saturating_sub(7);
        }
        let is_silent = matches!(self.habit, FtpHabit::TellsNoSizes | FtpHabit::KnowsNoSizes);
        let size = if is_silent {
            String::new()
        } else {
            format!("size={size};")
        };
        let is_newer = self.habit == FtpHabit::KeepsOld && path.ends_with("posthaste-partial");
        let year = if is_newer { 2021 } else { 2020 };
        format!("type=file;{size}modify={year}0101000000;UNIX.mode=0644;")
    }

    async fn transfer(&mut self, command: &str, path: &str) -> std::io::Result<()> {
        let start = std::mem::take(&mut self.start);
        let held = self.files.lock().unwrap().get(path).cloned();
        if command == "RETR" && held.is_none() {
            return self.say("550 no such file").await;
        }
        let listener = self.data.take().unwrap();
        self.say("150 here it goes").await?;
        let (mut data, _) = listener.accept().await?;
        if command == "STOR" {
            let mut bytes = held.unwrap_or_default();
            bytes.truncate(start);
            data.read_to_end(&mut bytes).await?;
            self.files.lock().unwrap().insert(path.to_owned(), bytes);
            let fails = self.habit == FtpHabit::FailsToStore;
            let answer = if fails {
                "451 local error"
            } else {
                "226 stored"
            };
            return self.say(answer).await;
        }
        let bytes = match held {
            Some(bytes) if self.habit == FtpHabit::PassesOverRest => bytes,
            Some(bytes) if self.habit == FtpHabit::EndsEarly => {
                bytes[start..bytes.len() / 2].to_vec()
            }
            Some(bytes) => bytes[start..].to_vec(),
            // A folder.
            None => self.list(),
        };
        // A client that needs no more closes.
        let _ = data.write_all(&bytes).await;
        let _ = data.shutdown().await;
        let fails = self.habit == FtpHabit::FailsAtEnd;
        let answer = if fails {
            "426 transfer aborted"
        } else {
            "226 complete"
        };
        self.say(answer).await
    }

    fn list(&self) -> Vec<u8> {
        let files = self.files.lock().unwrap();
        let lines = files.iter().map(|(path, bytes)| {
            let name = path.strip_prefix("/t/").unwrap();
            format!("{} {name}\r\n", self.facts(path, bytes.len()))
        });
        let mut lines = lines.collect::<String>().into_bytes();
        if self.habit == FtpHabit::CutsLists {
            lines.truncate(lines.len() - 4);
        }
        lines
    }
}
