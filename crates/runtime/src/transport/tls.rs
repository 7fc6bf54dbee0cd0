//! TLS by rustls with the ring provider.

use crate::error::TransportError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_name, WebPkiServerVerifier};
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    AlertDescription, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// ALPN name of bare frames; everything else on the port is HTTP.
pub(super) const RAW_PROTOCOL: &[u8] = b"hushnet/1";

/// PEM files of a party: what it shows, and the key of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, the party's own first.
    pub certificate: PathBuf,
    /// The private key that belongs to it.
    pub key: PathBuf,
}

fn fail(what: &str, e: impl std::fmt::Display) -> TransportError {
    TransportError::Tls(format!("{what}: {e}"))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    let what = format!("certificate file {}", path.display());
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| fail(&what, e))?;
    if found.is_empty() {
        return Err(fail(&what, "no PEM certificate in it"));
    }
    Ok(found)
}

/// The chain and the key of a party.
type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn pair(files: &TlsFiles) -> Result<Pair, TransportError> {
    let chain = certificates(&files.certificate)?;
    let what = format!("key file {}", files.key.display());
    Ok((chain, PrivateKeyDer::from_pem_file(&files.key).map_err(|e| fail(&what, e))?))
}

/// A server's configuration from PEM files. With authorities of clients (`clients`), a client without a certificate that one of them has
/// signed gets no further than the handshake.
pub(super) fn server(files: &TlsFiles, clients: Option<&Path>) -> Result<Arc<ServerConfig>, TransportError> {
    let (chain, key) = pair(files)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| fail("protocol versions", e))?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let authorities = Arc::new(roots(&certificates(path)?)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider()).build();
            builder.with_client_cert_verifier(verifier.map_err(|e| fail("authorities of clients", e))?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|e| fail("server certificate", e))?;
    config.alpn_protocols = vec![RAW_PROTOCOL.to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A certificate as a peer's name: the first 16 hexadecimal digits of its SHA-256.
pub(super) fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let hash = Sha256::digest(certificate.as_ref());
    hash.iter().take(8).fold("certificate:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A client's configuration: the system's roots, a given CA file, or no verification at all; `protocol` is asked for by ALPN, `own` is
/// shown to servers that ask for a certificate.
pub(super) fn client(
    ca: Option<&Path>,
    insecure: bool,
    own: Option<&TlsFiles>,
    protocol: Option<&[u8]>,
) -> Result<Arc<ClientConfig>, TransportError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| fail("protocol versions", e))?;
    let builder = if insecure {
        tracing::warn!("the server's certificate is not verified");
        let verifier = Arc::new(NoVerification(provider()));
        builder.dangerous().with_custom_certificate_verifier(verifier)
    } else if let Some(path) = ca {
        let trusted = certificates(path)?;
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(&trusted)?), provider());
        let authorities = authorities.build().map_err(|e| fail("CA certificate", e))?;
        let verifier = Arc::new(Trusted { authorities, trusted });
        builder.dangerous().with_custom_certificate_verifier(verifier)
    } else {
        builder.with_root_certificates(system_roots()?)
    };
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let (chain, key) = pair(files)?;
            builder.with_client_auth_cert(chain, key).map_err(|e| fail("the client's certificate", e))?
        }
    };
    config.alpn_protocols.extend(protocol.map(<[u8]>::to_vec));
    Ok(Arc::new(config))
}

fn roots(trusted: &[CertificateDer<'static>]) -> Result<RootCertStore, TransportError> {
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add(certificate.clone()).map_err(|e| fail("CA certificate", e))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TransportError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(fail("the system's certificates", "none found; name a CA file"));
    }
    Ok(roots)
}

/// What a failed handshake means to a user.
pub(super) fn explain(error: &rustls::Error) -> String {
    use rustls::CertificateError as Bad;
    if let Some(text) = refusal(error) {
        return text.into();
    }
    let rustls::Error::InvalidCertificate(bad) = error else { return error.to_string() };
    match bad {
        Bad::Expired | Bad::ExpiredContext { .. } => "the server's certificate has expired".into(),
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => "the server's certificate is not valid yet".into(),
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
            "the server's certificate is for another name than the one in the URL".into()
        }
        Bad::UnknownIssuer | Bad::BadSignature => "the server's certificate is not signed by an authority that this client trusts".into(),
        _ if is_authority(bad) => {
            "the server's certificate is one of an authority, as `openssl req -x509` makes them; trust this very certificate by naming its file as the CA file".into()
        }
        _ => "the server's certificate cannot be used".into(),
    }
}

/// What a server's refusal of a client's certificate means to a user.
fn refusal(error: &rustls::Error) -> Option<&'static str> {
    use AlertDescription as Alert;
    let rustls::Error::AlertReceived(alert) = error else { return None };
    match alert {
        Alert::CertificateRequired => Some("the server asks clients for a certificate; show yours (--cert FILE KEY, cert=)"),
        Alert::UnknownCA | Alert::BadCertificate | Alert::CertificateUnknown | Alert::CertificateExpired | Alert::DecryptError => {
            Some("the server does not take this client's certificate; show one that its authority has signed and that is valid now")
        }
        _ => None,
    }
}

/// What an error of reading or writing says of a client's certificate, if it does.
pub(super) fn refused(error: &std::io::Error) -> Option<&'static str> {
    refusal(error.get_ref()?.downcast_ref::<rustls::Error>()?)
}

/// Whether a certificate was refused because it says of itself that it is an authority.
fn is_authority(error: &rustls::CertificateError) -> bool {
    matches!(error, rustls::CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity"))
}

/// Trusts what authorities of a file have signed, and the certificates in that file themselves: a self-signed certificate is trusted when the
/// client names it, whatever it says about its use and its dates. Its names count.
#[derive(Debug)]
struct Trusted {
    authorities: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let signed = self.authorities.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        match signed {
            Err(rustls::Error::InvalidCertificate(e))
                if is_authority(&e) && self.trusted.iter().any(|t| t == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Accepts every certificate (but checks that the server owns it): for tests against self-signed servers.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
