//! Counting of written bytes over a slow link, whether an endpoint streams them, gathers them first
//! or gets them whole.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::stream;
use posthaste_endpoint::{ByteStream, Checksum, Endpoint, FileSpec, Outgoing, Writer};
use posthaste_testbed::{
    GcsServer, SlowLink, WebFace, WebServer,
    conformance::{leaves_in_steps, open},
};

const BYTES_PER_S: u32 = 8_000_000;

/// Bytes of headers and boundaries.
const BESIDE: u64 = 2_000;

fn spec(bytes: &Bytes) -> FileSpec {
    FileSpec {
        size: bytes.len() as u64,
        mtime: None,
        mode: None,
        origin: "test:outgoing".into(),
        version: None,
    }
}

fn zeros(len: usize) -> Bytes {
    vec![0; len].into()
}

fn link_to(port: u16) -> SlowLink {
    SlowLink::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), BYTES_PER_S).unwrap()
}

async fn put(link: &SlowLink, endpoint: &dyn Endpoint, bytes: Bytes) {
    let (spec, sum) = (spec(&bytes), Checksum::of(&bytes));
    let len = bytes.len() as u64;
    let putting = endpoint.put(b"small", &spec, vec![bytes], sum);
    let put = leaves_in_steps(link, (len, BESIDE), putting).await;
    put.unwrap();
}

/// Writes a segment like copies: the bytes that the endpoint reads from its body are counted.
async fn write(link: &SlowLink, writer: Arc<dyn Writer>, bytes: Bytes) {
    let len = bytes.len() as u64;
    let writing = async {
        let outgoing = Outgoing::current();
        let pieces: Vec<Bytes> = bytes.chunks(1 << 16).map(Bytes::copy_from_slice).collect();
        let pieces = pieces.into_iter().map(move |piece| {
            outgoing.pass(piece.len() as u64);
            Ok(piece)
        });
        let body: ByteStream = Box::pin(stream::iter(pieces));
        writer.write(0, 0..len, body).await
    };
    let written = leaves_in_steps(link, (len, BESIDE), writing).await;
    written.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_is_gathered_first_counts_as_it_is_sent() {
    let server = GcsServer::start().unwrap();
    let link = link_to(server.address().port());
    let profile = format!(
        "[gcs]\nendpoint = \"http://127.0.0.1:{}\"\nanonymous = true\n",
        link.port()
    );
    let address = format!("gs://{}/outgoing", GcsServer::BUCKET);
    let endpoint = open(&address, &profile).await.unwrap();
    assert!(endpoint.capabilities().segments_held);
    let segment = zeros(8 << 20);
    let writer = endpoint.create(b"large", &spec(&zeros(9 << 20))).await;
    write(&link, writer.unwrap(), segment).await;
    put(&link, &*endpoint, zeros(6_000_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_web_servers_are_given_counts_as_it_is_sent() {
    let server = WebServer::start().unwrap();
    let link = link_to(server.port(WebFace::Dav));
    let address = format!("webdav://127.0.0.1:{}/", link.port());
    let endpoint = open(&address, &server.profile()).await.unwrap();
    put(&link, &*endpoint, zeros(6_000_000)).await;
    let large = zeros(9_000_000);
    let writer = endpoint.create(b"large", &spec(&large)).await.unwrap();
    write(&link, writer, large).await;
}
