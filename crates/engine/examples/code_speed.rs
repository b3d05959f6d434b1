//! Measures the erasure code, and what else becomes of a chunk, on one core; `cargo xtask bench
//! code` runs it beside ISA-L.
//!
//! ```text
//! code_speed kernels                                  names this processor's kernels, fastest first
//! code_speed speed K M BYTES SECONDS OUT [KERNEL]     prints GB of data a second encoded and
//!                                                     rebuilt, and writes parity and rebuilt
//!                                                     fragments to OUT; KERNEL is a place in that list
//! code_speed chunk K M BYTES SECONDS                  prints GB of chunk a second digested,
//!                                                     encrypted, and made ready to be sent
//! ```
//!
//! Data, order of work and counting are those of `xtask/src/bench/code/isal.c`.

use std::{
    env,
    error::Error,
    fs::File,
    hint::black_box,
    io::Write,
    time::{Duration, Instant},
};

use posthaste_engine::{
    code::{Codec, Kernel},
    envelope::{Cipher, DatasetKey, TextName},
    stripe::{SPARE_BYTES, digest_of, encode_stripe},
};
use posthaste_types::Code;

/// Data of one batch: long beside the clock's resolution.
const BATCH_BYTES: usize = 64 << 20;
/// Buffers start at a page, as ISA-L's do.
const PAGE: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["kernels"] => {
            for kernel in Kernel::available() {
                say(&kernel.to_string());
            }
            Ok(())
        }
        ["speed", k, m, bytes, seconds, out] => speed(k, m, bytes, seconds, out, "0"),
        ["speed", k, m, bytes, seconds, out, kernel] => speed(k, m, bytes, seconds, out, kernel),
        ["chunk", k, m, bytes, seconds] => chunk(k, m, bytes, seconds),
        _ => Err("see the head of this program for its arguments".into()),
    }
}

fn speed(
    k: &str,
    m: &str,
    bytes: &str,
    seconds: &str,
    out: &str,
    kernel: &str,
) -> Result<(), Box<dyn Error>> {
    let code = Code::new(k.parse()?, m.parse()?)?;
    let (k, m) = (usize::from(code.data()), usize::from(code.parity()));
    let size: usize = bytes.parse()?;
    let span = Duration::from_secs_f64(seconds.parse()?);
    let kernel = Kernel::available().get(kernel.parse::<usize>()?).copied();
    let codec = Codec::with_kernel(code, kernel.ok_or("there is no such kernel")?);
    let codec = codec.ok_or("this processor lacks the kernel")?;
    let (mut memory, mut back) = (vec![1; size * (k + m) + PAGE], vec![1; size * m + PAGE]);
    let all = from_page(&mut memory, size * (k + m));
    let (data, parity) = all.split_at_mut(size * k);
    fill(data);
    let data: Vec<&[u8]> = data.chunks_exact(size).collect();
    let mut parity: Vec<&mut [u8]> = parity.chunks_exact_mut(size).collect();
    let encoded = measure(size * k, span, || codec.encode(&data, &mut parity))?;
    // The first data fragments are lost, as many as may be.
    let lost = m.min(k);
    let (lost_data, left) = data.split_at(lost);
    let left = left.iter().copied().chain(parity.iter().map(|p| &**p));
    let present: Vec<(u8, &[u8])> = (0..).skip(lost).zip(left).take(k).collect();
    let wanted: Vec<u8> = (0..).take(lost).collect();
    let mut rebuilt: Vec<&mut [u8]> = from_page(&mut back, size * lost)
        .chunks_exact_mut(size)
        .collect();
    let decoded = measure(size * k, span, || {
        codec.reconstruct(&present, &wanted, &mut rebuilt)
    })?;
    if rebuilt.iter().ne(lost_data) {
        return Err("what was rebuilt is not what was lost".into());
    }
    let mut out = File::create(out)?;
    for fragment in parity.iter().chain(&rebuilt) {
        out.write_all(fragment)?;
    }
    say(&format!("encode {encoded:.3}\ndecode {decoded:.3}"));
    Ok(())
}

/// Measures a chunk on its way out, in the clear and encrypted. Copying it to a fresh buffer stands
/// for reading it.
fn chunk(k: &str, m: &str, bytes: &str, seconds: &str) -> Result<(), Box<dyn Error>> {
    let codec = Codec::new(Code::new(k.parse()?, m.parse()?)?);
    let span = Duration::from_secs_f64(seconds.parse()?);
    let mut data = vec![0; bytes.parse()?];
    fill(&mut data);
    let size = data.len();
    let cipher = Cipher::new(&DatasetKey::random()?);
    let fresh = || {
        let mut buffer = Vec::with_capacity(size + SPARE_BYTES);
        buffer.extend_from_slice(&data);
        buffer
    };
    let digested = measure(size, span, || {
        black_box(digest_of(black_box(&data)));
        Ok::<_, Box<dyn Error>>(())
    })?;
    let mut text = fresh();
    let encrypted = measure(size, span, || {
        text.truncate(size);
        black_box(cipher.encrypt(TextName::Chunk(0), &mut text));
        Ok::<_, Box<dyn Error>>(())
    })?;
    let ready = |cipher: Option<&Cipher>| {
        measure(size, span, || {
            encode_stripe(&codec, cipher, 0, fresh()).map(|stripe| drop(black_box(stripe)))
        })
    };
    let (clear, hidden) = (ready(None)?, ready(Some(&cipher))?);
    say(&format!(
        "digest {digested:.3}\nencrypt {encrypted:.3}\nclear {clear:.3}\nencrypted {hidden:.3}"
    ));
    Ok(())
}

/// Returns GB a second, the median of batches.
#[expect(clippy::disallowed_methods, reason = "measures the real clock")]
fn measure<E>(
    bytes: usize,
    span: Duration,
    mut work: impl FnMut() -> Result<(), E>,
) -> Result<f64, E> {
    let repeats = BATCH_BYTES / bytes + 1;
    let mut batches = Vec::new();
    work()?;
    let started = Instant::now();
    while batches.is_empty() || started.elapsed() < span {
        let start = Instant::now();
        for _ in 0..repeats {
            work()?;
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let done = (bytes * repeats) as f64;
        batches.push(done / start.elapsed().as_secs_f64() / 1e9);
    }
    batches.sort_by(f64::total_cmp);
    Ok(batches[batches.len() / 2])
}

fn from_page(memory: &mut [u8], size: usize) -> &mut [u8] {
    let start = memory.as_ptr().align_offset(PAGE);
    &mut memory[start..start + size]
}

/// Fills by the xorshift64 generator (Marsaglia, "Xorshift RNGs", 2003).
fn fill(bytes: &mut [u8]) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for eight in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        eight.copy_from_slice(&state.to_le_bytes());
    }
}

#[expect(clippy::print_stdout, reason = "what the benchmark reads")]
fn say(line: &str) {
    println!("{line}");
}
