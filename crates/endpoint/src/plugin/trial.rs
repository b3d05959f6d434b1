//! Properties that must hold whatever a plug-in says.

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::Value;

use super::{
    board::{Board, Inbox},
    entry::{Names, read_entry},
    greeting::Greeting,
    refusal::{Doing, Refusal, Secrets},
    wire::{Answer, Decoder, Piece, decode_name, encode_name},
};

/// Bytes that each pending request wants, and how many may come at once.
const RANGE_BYTES: u64 = 70_000;
const WINDOW_BYTES: u64 = 40_000;

/// Replays output to a board with three pending requests, the second of them cancelled. Only bytes
/// that were allowed arrive.
pub(super) fn output(data: &[u8]) {
    let Some((&step, data)) = data.split_first() else {
        return;
    };
    let board = Board::default();
    let inboxes: Vec<Arc<Inbox>> = (1..=3)
        .map(|id| {
            let inbox = Inbox::new(RANGE_BYTES, WINDOW_BYTES, 0);
            board.open(id, Arc::clone(&inbox), None);
            inbox
        })
        .collect();
    board.cancel(2);
    let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::new());
    let mut taken = [0_u64; 3];
    'all: for bytes in data.chunks(usize::from(step).max(1)) {
        buffer.extend_from_slice(bytes);
        loop {
            match decoder.next(&mut buffer) {
                Ok(Some(piece)) => {
                    look_at(&piece);
                    if board.deliver(piece).is_err() {
                        break 'all;
                    }
                }
                Ok(None) => break,
                Err(_) => break 'all,
            }
        }
        // The first is read as it comes, the third not at all.
        take(&inboxes[0], &mut taken[0], true);
    }
    board.close("it is over");
    for (inbox, taken) in inboxes.iter().zip(&mut taken) {
        take(inbox, taken, false);
    }
    assert!(taken[0] <= RANGE_BYTES, "more than was asked for");
    assert_eq!(taken[1], 0, "bytes nobody wants are kept");
    assert!(taken[2] <= WINDOW_BYTES, "more than was given credit for");
}

fn take(inbox: &Inbox, taken: &mut u64, grants: bool) {
    let mut state = inbox.lock();
    while let Some(bytes) = state.take() {
        *taken += bytes.len() as u64;
        if grants {
            state.grant(bytes.len() as u64);
        }
    }
}

fn look_at(piece: &Piece) {
    match piece {
        Piece::Answer(Answer::Hello(hello)) => {
            if let Ok(greeting) = Greeting::read(hello.clone()) {
                let can = greeting.capabilities("fuzz");
                assert!(can.segment_size_min > 0 && greeting.segment_size() > 0);
            }
        }
        Piece::Answer(Answer::Refused(refusal) | Answer::Failed { refusal, .. }) => {
            show(refusal);
        }
        Piece::Answer(
            Answer::Data { .. }
            | Answer::Credit { .. }
            | Answer::Alive { .. }
            | Answer::Done { .. },
        )
        | Piece::Payload { .. } => {}
    }
}

fn show(refusal: &Refusal) {
    let secret = "secret".to_owned();
    let secrets = Secrets::new(std::iter::once(&secret));
    let error = refusal.error(Doing::READ, "fuzz://", &secrets).to_string();
    assert!(!error.contains(&secret), "a secret is shown");
    assert!(!error.contains(char::is_control), "it is more than a line");
}

/// Parses an entry of a directory and of a tree: no name leads out of it.
pub(super) fn entry(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    if let Some(entry) = read_entry(&value, Some(Names::Single)) {
        assert!(!entry.name.contains(&b'/') && !entry.name.contains(&0));
        let text = encode_name(&entry.name);
        assert_eq!(decode_name(&text).as_ref(), Some(&entry.name));
    }
    if let Some(entry) = read_entry(&value, Some(Names::Paths)) {
        let mut names = entry.name.split(|&byte| byte == b'/');
        assert!(names.all(|name| !matches!(name, b"" | b"." | b"..")));
    }
}
