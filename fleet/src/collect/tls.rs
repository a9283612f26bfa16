//! TLS of a collector that listens: connections whose handshake is done.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Handshakes at the same time.
const HANDSHAKES: usize = 64;
/// How long a handshake may take.
const LONGEST_HANDSHAKE: Duration = Duration::from_secs(10);
/// Pause after a connection could not be taken, such as for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(500);

/// What a certificate and its key, both PEM, make of a server.
///
/// # Errors
/// When a file cannot be read, or they do not belong together.
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor> {
    let read = || CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>();
    let chain = read().with_context(|| format!("cannot read the certificate {}", certificate.display()))?;
    if chain.is_empty() {
        bail!("{} has no certificate (PEM)", certificate.display());
    }
    let secret = PrivateKeyDer::from_pem_file(key).with_context(|| format!("cannot read the key {}", key.display()))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, secret);
    let mut config = config.with_context(|| format!("{} and {} do not fit", certificate.display(), key.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Connections to a socket, by TLS. Each handshake is a task, so that a slow client holds nobody up.
pub struct TlsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl TlsListener {
    /// Takes connections from now on.
    ///
    /// # Errors
    /// When the socket has no address.
    pub fn start(socket: TcpListener, acceptor: TlsAcceptor) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let (sender, ready) = mpsc::channel(HANDSHAKES);
        let turns = Arc::new(Semaphore::new(HANDSHAKES));
        tokio::spawn(async move {
            while let Ok(turn) = Arc::clone(&turns).acquire_owned().await {
                let Ok((stream, from)) = socket.accept().await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    // Whoever does not speak TLS, or does not know the certificate, gets the error at its end.
                    if let Ok(Ok(stream)) = tokio::time::timeout(LONGEST_HANDSHAKE, acceptor.accept(stream)).await {
                        let _ = sender.send((stream, from)).await;
                    }
                    drop(turn);
                });
            }
        });
        Ok(Self { address, ready })
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The task ends with the program.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}
