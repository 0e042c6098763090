//! How much memory the read of a large zone takes. Alone in its process, because the peak is that of the process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use signpost_dns::ZoneName;
use signpost_provider_powerdns::{ClientOptions, PowerDnsClient, Secret, ZoneServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The zone of the answer: 31.5 MB of text.
const SETS: usize = 254_032;

/// Answers every request with the zone, made up while it is sent.
async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    addr
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = [0; 4096];
    let _ = stream.read(&mut head).await?;
    let start = r#"{"id":"big.example.","name":"big.example.","kind":"Native","soa_edit_api":"DEFAULT","rrsets":["#;
    stream.write_all(format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{start}").as_bytes()).await?;
    let mut text = String::new();
    for n in 0..SETS {
        let comma = if n > 0 { "," } else { "" };
        write!(text, r#"{comma}{{"comments":[],"name":"host-{n:06}.big.example.","records":[{{"content":"192.0.2.1","disabled":false}}],"ttl":300,"type":"A"}}"#).unwrap();
        if text.len() > 60_000 {
            stream.write_all(text.as_bytes()).await?;
            text.clear();
        }
    }
    stream.write_all(format!("{text}],\"serial\":7}}").as_bytes()).await
}

/// The largest resident size so far, in MB; starts again from now.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

#[tokio::test]
async fn a_large_zone_is_read_without_its_text_in_memory() {
    let client = PowerDnsClient::new(ClientOptions {
        url: format!("http://{}", serve().await).parse().unwrap(),
        key: Secret::Value("k".into()),
        vhost: "localhost".into(),
        timeout: Duration::from_mins(5),
        insecure: false,
        ca_path: None,
        concurrency: 1,
    })
    .unwrap();
    let zone = ZoneName::parse("big.example").unwrap();
    peak();
    let before = peak();
    let mut count = 0;
    let info = client.read_each(&zone, &mut |_| count += 1).await.unwrap().unwrap();
    let each = peak().saturating_sub(before);
    assert_eq!((info.serial, count), (7, SETS));
    let contents = client.read(&zone).await.unwrap().unwrap();
    let whole = peak().saturating_sub(before);
    assert_eq!(contents.sets.len(), SETS);
    println!("{SETS} sets: {each} MB one by one, {whole} MB as a whole, {before} MB before");
    assert!(each <= 10, "{each} MB to read a zone set by set");
    assert!(whole <= 75, "{whole} MB to read a zone as a whole");
}
