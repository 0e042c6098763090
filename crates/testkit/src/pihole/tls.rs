//! HTTPS in front of a server, with a certificate like a Pi-hole's own (its own authority, good for `pi.hole` only), or for an address.
//!
//! FTL 6.3 and later renew the certificate two days before it ends, and make a new authority with it: see [`TlsFront::renew`]. Keys are
//! ECDSA on P-384, as FTL's are; the certificates here are valid for a century, because fixtures must not expire.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A TLS port that leads to a plain one. The key is for tests only and signs nothing else.
pub struct TlsFront {
    addr: SocketAddr,
    ca_file: PathBuf,
    acceptor: Arc<RwLock<TlsAcceptor>>,
    _dir: tempfile::TempDir,
    task: JoinHandle<()>,
}

impl TlsFront {
    /// Opens HTTPS in front of the server at `to`.
    pub async fn open(to: SocketAddr) -> Self {
        let certificate = include_bytes!("tls/pi.hole.crt");
        Self::start(to, certificate, include_bytes!("tls/pi.hole.key"), include_bytes!("tls/ca.crt")).await
    }

    /// The same with a certificate for `127.0.0.1`, from another authority.
    pub async fn open_by_address(to: SocketAddr) -> Self {
        let certificate = include_bytes!("tls/local.crt");
        Self::start(to, certificate, include_bytes!("tls/local.key"), include_bytes!("tls/local-ca.crt")).await
    }

    /// The same, for clients with the certificate of [`TlsFront::client`] only.
    pub async fn open_for_clients(to: SocketAddr) -> Self {
        let certificate = include_bytes!("tls/local.crt");
        let front =
            Self::start(to, certificate, include_bytes!("tls/local.key"), include_bytes!("tls/local-ca.crt")).await;
        let clients = Some(&include_bytes!("tls/client-ca.crt")[..]);
        let strict = acceptor_for(certificate, include_bytes!("tls/local.key"), clients);
        *front.acceptor.write().unwrap_or_else(PoisonError::into_inner) = strict;
        front
    }

    /// A client certificate and its key, in PEM.
    pub fn client() -> (&'static str, &'static str) {
        (include_str!("tls/client.crt"), include_str!("tls/client.key"))
    }

    /// Renews the certificate as FTL does: the new one is signed by a new authority. The CA file is unchanged, like a copy of the old one.
    pub fn renew(&self) {
        let renewed = acceptor(include_bytes!("tls/pi.hole-renewed.crt"), include_bytes!("tls/pi.hole-renewed.key"));
        *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = renewed;
    }

    /// Copies the authority of the renewed certificate into the CA file, as the user does.
    pub fn copy_renewed_ca(&self) {
        std::fs::write(&self.ca_file, include_bytes!("tls/ca-renewed.crt")).expect("the CA file is writable");
    }

    async fn start(to: SocketAddr, certificate: &[u8], key: &[u8], authority: &[u8]) -> Self {
        let acceptor = Arc::new(RwLock::new(acceptor(certificate, key)));
        let shared = Arc::clone(&acceptor);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let acceptor = shared.read().unwrap_or_else(PoisonError::into_inner).clone();
                tokio::spawn(async move {
                    let mut inside = acceptor.accept(stream).await?;
                    let mut plain = TcpStream::connect(to).await?;
                    tokio::io::copy_bidirectional(&mut inside, &mut plain).await
                });
            }
        });
        let dir = tempfile::tempdir().expect("a temporary directory");
        let ca_file = dir.path().join("tls_ca.crt");
        std::fs::write(&ca_file, authority).expect("the temporary directory is writable");
        Self { addr, ca_file, acceptor, _dir: dir, task }
    }

    /// The URL by address, as users have it.
    pub fn url(&self) -> String {
        format!("https://{}", self.addr)
    }

    /// The authority's certificate.
    pub fn ca_file(&self) -> &Path {
        &self.ca_file
    }
}

fn acceptor(certificate: &[u8], key: &[u8]) -> TlsAcceptor {
    acceptor_for(certificate, key, None)
}

fn acceptor_for(certificate: &[u8], key: &[u8], clients: Option<&[u8]>) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("TLS versions");
    let builder = match clients {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority).expect("a certificate")).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(vec![certificate], key).expect("a usable certificate");
    TlsAcceptor::from(Arc::new(config))
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}
