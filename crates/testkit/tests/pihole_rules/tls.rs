//! The certificate that a Pi-hole makes for itself.

use super::*;

/// The object identifier of the curve P-384 (1.3.132.0.34), as it is in a certificate.
const P384: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];

async fn answered(front: &TlsFront) -> Result<u16, String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pem = std::fs::read(front.ca_file()).unwrap();
    let authorities = reqwest::Certificate::from_pem_bundle(&pem).unwrap();
    let port = front.url().rsplit(':').next().unwrap().parse().unwrap();
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only(authorities)
        .resolve("pi.hole", ([127, 0, 0, 1], port).into())
        .build()
        .unwrap();
    let answer = client.get(format!("https://pi.hole:{port}/api/info/login")).send().await;
    answer.map(|answer| answer.status().as_u16()).map_err(|error| format!("{error:?}"))
}

/// FTL v6.4.1: certificate and authority have ECDSA keys on P-384, the certificate is for `pi.hole` only.
#[tokio::test]
async fn the_own_certificate_is_on_p_384() {
    let pihole = PiholeV6::start().await;
    let front = TlsFront::open(pihole.addr()).await;
    assert_eq!(answered(&front).await, Ok(200));
    let pem = std::fs::read(front.ca_file()).unwrap();
    let der =
        <rustls::pki_types::CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(&pem).unwrap();
    assert!(der.windows(P384.len()).any(|bytes| bytes == P384));
}

/// FTL v6.3 and later: the certificate (47 days, `webserver.tls.validity`) is renewed two days before it ends, and its authority is replaced with it: a copy of the old
/// `tls_ca.crt` no longer verifies it.
#[tokio::test]
async fn a_renewed_certificate_has_a_new_authority() {
    let pihole = PiholeV6::start().await;
    let front = TlsFront::open(pihole.addr()).await;
    assert_eq!(answered(&front).await, Ok(200));
    front.renew();
    let refused = answered(&front).await.unwrap_err();
    assert!(refused.contains("UnknownIssuer") || refused.contains("BadSignature"), "{refused}");
    front.copy_renewed_ca();
    assert_eq!(answered(&front).await, Ok(200));
}
