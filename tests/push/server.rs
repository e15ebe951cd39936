//! A minimal server that accepts pushes: HTTP/1.1, one request a connection, with TLS if it has a
//! certificate.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A request as received.
#[derive(Clone, Debug)]
pub struct Got {
    /// `POST /ingest?... HTTP/1.1`
    pub line: String,
    /// In small letters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub answer: u16,
}

impl Got {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// A value of the query, decoded.
    pub fn query(&self, key: &str) -> Option<String> {
        let query = self.line.split(' ').nth(1)?.split_once('?')?.1;
        let value = query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))?;
        Some(percent_encoding::percent_decode_str(value).decode_utf8().expect("text").into_owned())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Answers(u16),
    /// Answers 401, except with this header.
    Wants(&'static str),
    /// Answers 307, to another port of this machine.
    Moved(u16),
    /// Reads, and never answers.
    Hangs,
}

struct State {
    mode: Mode,
    got: Vec<Got>,
    /// Keeps connections open.
    hanging: Vec<TcpStream>,
}

pub struct Server {
    port: u16,
    encrypted: bool,
    state: Arc<Mutex<State>>,
}

impl Server {
    /// Serves until the test's process ends.
    pub fn start(mode: Mode, tls: Option<Arc<ServerConfig>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let state = Arc::new(Mutex::new(State { mode, got: Vec::new(), hanging: Vec::new() }));
        let (shared, encrypted) = (Arc::clone(&state), tls.is_some());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, tls) = (Arc::clone(&shared), tls.clone());
                // A client that closes the connection, or rejects the certificate, is no failure
                // here.
                std::thread::spawn(move || serve(stream, tls, &shared));
            }
        });
        Server { port, encrypted, state }
    }

    pub fn address(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.encrypted { "https" } else { "http" }, self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn set(&self, mode: Mode) {
        lock(&self.state).mode = mode;
    }

    /// Returns all requests, in their order.
    pub fn got(&self) -> Vec<Got> {
        lock(&self.state).got.clone()
    }

    /// Returns the requests that it accepted.
    pub fn taken(&self) -> Vec<Got> {
        self.got().into_iter().filter(|got| got.answer == 200).collect()
    }

    pub fn hanging(&self) -> usize {
        lock(&self.state).hanging.len()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no test failed with it")
}

fn serve(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    state: &Mutex<State>,
) -> std::io::Result<()> {
    let Some(tls) = tls else { return answer(&stream, &stream, state) };
    let connection = ServerConnection::new(tls).map_err(std::io::Error::other)?;
    answer(&stream, StreamOwned::new(connection, &stream), state)
}

fn answer(raw: &TcpStream, stream: impl Read + Write, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut headers) = (String::new(), Vec::new());
    reader.read_line(&mut line)?;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let mut state = lock(state);
    let status = match state.mode {
        Mode::Hangs => {
            let raw = raw.try_clone()?;
            state.hanging.push(raw);
            return Ok(());
        }
        Mode::Answers(status) => status,
        Mode::Wants(value)
            if headers.iter().any(|(name, other)| name == "authorization" && other == value) =>
        {
            200
        }
        Mode::Wants(_) => 401,
        Mode::Moved(_) => 307,
    };
    let moved = match state.mode {
        Mode::Moved(port) => format!("Location: http://127.0.0.1:{port}/ingest\r\n"),
        _ => String::new(),
    };
    state.got.push(Got { line: line.trim_end().into(), headers, body, answer: status });
    drop(state);
    let words = if status == 200 { "" } else { "not today" };
    let length = words.len();
    let stream = reader.get_mut();
    write!(
        stream,
        "HTTP/1.1 {status} X\r\n{moved}Content-Length: {length}\r\nConnection: close\r\n\r\n{words}"
    )?;
    stream.flush()
}

/// Returns an authority, in PEM, and the configuration of a server of this name with a certificate
/// of that authority.
pub fn certified(name: &str) -> (String, Arc<ServerConfig>) {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    let key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.distinguished_name.push(DnType::CommonName, format!("who vouches for {name}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&key).expect("signed");
    let pem = certificate.pem();
    let issuer = Issuer::new(authority, key);
    let own_key = KeyPair::generate().expect("a key");
    let own = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    let own = own.signed_by(&own_key, &issuer).expect("signed");
    let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], secret)
        .expect("they go together");
    (pem, Arc::new(config))
}
