//! Stores that are not folders, on real servers: what arrives is what was recorded, whatever network and service do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tracehound_tests::fault_proxy::{Fault, FaultProxy};
use tracehound_tests::fleet::{Fleet, free_address, running};
use tracehound_tests::process::Running;
use tracehound_tests::{compile, heaptrace, root, wait_for};

/// A server of buckets, one bucket in it, and a spool.
struct Bucket {
    fleet: Fleet,
    /// Where the server listens.
    address: String,
    /// What `heaptrace` needs to know of it.
    variables: BTreeMap<&'static str, String>,
    /// The folder of the bucket, where its objects are files.
    objects: PathBuf,
    _server: Running,
}

/// Runs `openssl`.
fn openssl(arguments: &[&str], paths: &[&Path]) {
    let output = Command::new("openssl").args(arguments).args(paths).output().expect("openssl is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Where `tests/object-stores.sh` has installed a server; it is run if need be.
fn server(name: &str) -> PathBuf {
    let script = root().join("tests/object-stores.sh");
    let output = Command::new(script).arg(name).output().expect("tests/object-stores.sh can be started");
    assert!(output.status.success(), "tests/object-stores.sh: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a path").trim().into()
}

impl Bucket {
    /// Bucket `heap` of versitygw, a server of S3.
    fn s3() -> Self {
        let mut fleet = Fleet::default();
        let address = free_address();
        let objects = fleet.stored().join("heap");
        std::fs::create_dir_all(&objects).unwrap();
        let mut command = Command::new(server("versitygw"));
        command.args(["--port", &address, "posix"]).arg(fleet.stored()).stdout(Stdio::null());
        command.env("ROOT_ACCESS_KEY", "key").env("ROOT_SECRET_KEY", "a secret");
        let server = running(command);
        wait_for("the server", Duration::from_secs(30), || std::net::TcpStream::connect(&address).is_ok());
        fleet.store = "s3://heap/fleet".into();
        let variables = BTreeMap::from([
            ("AWS_ACCESS_KEY_ID", "key".into()),
            ("AWS_SECRET_ACCESS_KEY", "a secret".into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ALLOW_HTTP", "true".into()),
            ("AWS_ENDPOINT", format!("http://{address}")),
        ]);
        Self { fleet, address, variables, objects, _server: server }
    }

    /// Container `heap` of Azurite, a server of Azure's blobs.
    fn az() -> Self {
        const ACCOUNT: &str = "devstoreaccount1";
        // It is the same in every Azurite, and no secret.
        const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
        let mut fleet = Fleet::default();
        let address = free_address();
        let (host, port) = address.split_once(':').expect("a port");
        let mut command = Command::new(server("azurite"));
        command.args(["--blobHost", host, "--blobPort", port, "--silent", "--disableTelemetry"]);
        // What it speaks is older than what is asked for.
        command.args(["--skipApiVersionCheck", "--location"]).arg(fleet.stored());
        let server = running(command);
        wait_for("the server", Duration::from_secs(60), || std::net::TcpStream::connect(&address).is_ok());
        let endpoint = format!("http://{address}/{ACCOUNT}");
        let script = root().join("tests/clients/make_container.mjs");
        let made = Command::new("node").arg(script).args([&endpoint, "heap", KEY]).status().expect("node is there");
        assert!(made.success());
        fleet.store = "az://heap/fleet".into();
        let variables = BTreeMap::from([
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.into()),
            ("AZURE_STORAGE_ACCOUNT_KEY", KEY.into()),
            ("AZURE_STORAGE_ENDPOINT", endpoint),
            ("AZURE_ALLOW_HTTP", "true".into()),
        ]);
        Self { objects: fleet.stored(), fleet, address, variables, _server: server }
    }

    /// Bucket `heap` of a server that answers as Google's storage does (`tests/clients/gcs.py`), for an account with a key.
    fn gs() -> Self {
        const ACCOUNT: &str = "collector@tests.example";
        let mut fleet = Fleet::default();
        let address = free_address();
        let (_, port) = address.split_once(':').expect("a port");
        let (key, public) = (fleet.spool().join("key.pem"), fleet.spool().join("public.pem"));
        openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out"], &[&key]);
        openssl(&["pkey", "-pubout", "-in"], &[&key, Path::new("-out"), &public]);
        let mut command = Command::new("/usr/bin/python3");
        command.arg(root().join("tests/clients/gcs.py")).args([port, "heap", ACCOUNT]).arg(&public);
        let server = running(command);
        wait_for("the server", Duration::from_secs(30), || std::net::TcpStream::connect(&address).is_ok());
        fleet.store = "gs://heap/fleet".into();
        let objects = fleet.stored();
        let mut bucket = Self { fleet, variables: BTreeMap::new(), objects, _server: server, address };
        bucket.use_key(ACCOUNT, &key);
        bucket.variables.insert("GOOGLE_BASE_URL", format!("http://{}", bucket.address));
        bucket.variables.insert("GOOGLE_ALLOW_HTTP", "true".into());
        bucket
    }

    /// Has `heaptrace` use the key of an account of Google's.
    fn use_key(&mut self, account: &str, key: &Path) {
        let key = std::fs::read_to_string(key).expect("a key");
        let account = serde_json::json!({
            "type": "service_account", "client_email": account, "private_key": key, "private_key_id": "1"
        });
        let file = self.fleet.spool().join("account.json");
        std::fs::write(&file, account.to_string()).expect("it can be written");
        self.variables.insert("GOOGLE_SERVICE_ACCOUNT", file.display().to_string());
    }

    /// A proxy in front of the server, which `heaptrace` talks to from now on.
    fn behind_proxy(&mut self) -> FaultProxy {
        let proxy = FaultProxy::start(&self.address);
        self.variables.insert("AWS_ENDPOINT", format!("http://{}", proxy.address));
        proxy
    }

    fn with_variables<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.envs(&self.variables).env("XDG_CACHE_HOME", self.fleet.spool().join("cache"))
    }

    fn output(&self, command: &mut Command) -> Output {
        self.with_variables(command).output().expect("heaptrace can be started")
    }

    fn said(&self, command: &mut Command) -> String {
        let output = self.output(command);
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    fn fleet(&self, question: &str, options: &[&str]) -> String {
        self.said(Command::new(heaptrace()).args(["fleet", question, &self.fleet.store]).args(options))
    }

    /// Three recordings in the spool; the blocks of one are more than a part of an upload.
    fn record(&self) {
        let program = compile("planted.c", &["-O1", "-g"]);
        for fault in ["leak", "none"] {
            let status = self.fleet.traced(&program, "service=shop,version=1").arg(fault).status().expect("it starts");
            assert!(status.success());
        }
        let mut long = self.fleet.traced(&compile("counted_blocks.c", &["-O1"]), "service=long");
        let status = long.arg(self.fleet.spool().join("done")).args(["3000000", "0"]).status().expect("it starts");
        assert!(status.success());
        let longest = self.spooled().values().map(Vec::len).max();
        assert!(longest > Some(16 << 20), "{longest:?} bytes are one part of an upload");
    }

    /// The recordings of the spool, by id.
    fn spooled(&self) -> BTreeMap<String, Vec<u8>> {
        let files = std::fs::read_dir(self.fleet.spool()).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|end| end == "dat"));
        files
            .filter_map(|path| {
                let bytes = match std::fs::read(path) {
                    // The collector has given it up since the folder was read.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
                    read => read.unwrap(),
                };
                Some((bytes[16..32].iter().map(|byte| format!("{byte:02x}")).collect(), bytes))
            })
            .collect()
    }

    /// Those that the store has, as `heaptrace` brings them here.
    fn fetched(&self) -> BTreeMap<String, Vec<u8>> {
        let mut command = Command::new(heaptrace().with_file_name("heaptrace-fleet"));
        let paths = self.said(command.args(["fetch", &self.fleet.store]));
        let paths = paths.lines().map(Path::new);
        paths
            .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap()))
            .collect()
    }
}

/// Collects, asks and compacts as a user does; what there is to know is the same as of a folder.
fn is_a_store(bucket: &Bucket) {
    bucket.record();
    let spooled = bucket.spooled();
    bucket.said(&mut bucket.fleet.collect(&["--once", "--keep"]));
    assert_eq!(bucket.fetched(), spooled, "byte for byte");
    for id in spooled.keys() {
        let url = format!("{}/raw/{id}.dat", bucket.fleet.store);
        let info = bucket.said(Command::new(heaptrace()).args(["info", "--json", &url]));
        assert_eq!(serde_json::from_str::<Value>(&info).expect("JSON")["complete"], true, "{id}");
    }
    let leaks = bucket.fleet("leaks", &[]);
    assert!(leaks.contains("session_open"), "{leaks}");
    bucket.fleet("compact", &["--before", "9999-01-01"]);
    assert_eq!(bucket.fleet("leaks", &[]), leaks);
    // Collected again it is the same, and the spool is given up.
    bucket.said(&mut bucket.fleet.collect(&["--once"]));
    assert!(bucket.spooled().is_empty());
    assert_eq!(bucket.fetched(), spooled);
}

#[test]
#[ignore = "the server takes minutes to build: make stores"]
fn a_bucket_of_s3_is_a_store() {
    is_a_store(&Bucket::s3());
}

#[test]
#[ignore = "the server takes a minute to install: make stores"]
fn a_container_of_azure_is_a_store() {
    is_a_store(&Bucket::az());
}

#[test]
fn a_bucket_of_google_is_a_store() {
    let mut bucket = Bucket::gs();
    is_a_store(&bucket);
    // Whoever has another key gets the reason, in a sentence.
    let other = bucket.fleet.spool().join("other.pem");
    openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out"], &[&other]);
    bucket.use_key("collector@tests.example", &other);
    let output = bucket.output(Command::new(heaptrace()).args(["fleet", "top", &bucket.fleet.store]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("AuthenticationRequired"), "{said}");
    assert!(said.lines().count() == 1, "{said}");
}

#[test]
#[ignore = "the pauses between tries take a minute: make stores"]
fn what_google_fails_at_loses_nothing() {
    let mut bucket = Bucket::gs();
    let proxy = FaultProxy::start(&bucket.address);
    bucket.variables.insert("GOOGLE_BASE_URL", format!("http://{}", proxy.address));
    proxy.schedule(|number, _| match scattered(11, number) % 8 {
        0 => Fault::CutAnswer,
        1 => Fault::Busy,
        _ => Fault::Pass,
    });
    let program = compile("planted.c", &["-O1", "-g"]);
    let status = bucket.fleet.traced(&program, "service=shop,version=2").arg("leak").status().expect("it starts");
    assert!(status.success());
    let spooled = bucket.spooled();
    bucket.said(&mut bucket.fleet.collect(&["--once"]));
    let fetched = bucket.fetched();
    assert_eq!(fetched, spooled, "byte for byte");
    assert!(proxy.done().iter().any(|(_, fault)| *fault != Fault::Pass));
}

/// Numbers without a pattern, by a seed.
fn scattered(seed: u64, number: u64) -> u64 {
    let mut x = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[test]
#[ignore = "the server takes minutes to build: make stores"]
fn cut_connections_and_failures_lose_nothing() {
    let mut bucket = Bucket::s3();
    let proxy = bucket.behind_proxy();
    bucket.record();
    let spooled = bucket.spooled();
    proxy.schedule(|number, _| match scattered(7, number) % 16 {
        0 => Fault::CutRequest,
        1 => Fault::CutAnswer,
        2 => Fault::Busy,
        3 => Fault::Failed,
        _ => Fault::Pass,
    });
    bucket.said(&mut bucket.fleet.collect(&["--once", "--keep"]));
    assert_eq!(bucket.fetched(), spooled, "byte for byte");
    let top = bucket.fleet("top", &["--json"]);
    bucket.fleet("compact", &["--before", "9999-01-01"]);
    assert_eq!(bucket.fleet("top", &["--json"]), top);
    let mut met: BTreeMap<Fault, usize> = BTreeMap::new();
    proxy.done().iter().for_each(|(_, fault)| *met.entry(*fault).or_default() += 1);
    assert_eq!(met.len(), 5, "each fault was met: {met:?}");
    proxy.schedule(|_, _| Fault::Pass);
    assert_eq!(bucket.fleet("top", &["--json"]), top);
    // An upload whose beginning was not answered has no parts.
    assert_eq!(unfinished_uploads(&bucket), Vec::<PathBuf>::new());
}

/// Uploads that were begun and neither completed nor given up: a bucket keeps their parts, and bills them.
fn unfinished_uploads(bucket: &Bucket) -> Vec<PathBuf> {
    let mut waiting = vec![bucket.objects.join(".sgwtmp/multipart")];
    let mut files = Vec::new();
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { waiting.push(path) } else { files.push(path) }
        }
    }
    files
}

#[test]
#[ignore = "the server takes minutes to build: make stores"]
fn an_upload_that_fails_leaves_no_parts() {
    let mut bucket = Bucket::s3();
    let proxy = bucket.behind_proxy();
    bucket.record();
    // Recordings are made of their segments: those cannot be read while an upload is under way.
    proxy.schedule(|number, line| match line.starts_with("GET") && line.contains(".seg") && number % 2 == 0 {
        true => Fault::Expired,
        false => Fault::Pass,
    });
    let mut command = bucket.fleet.collect(&["--interval", "20", "--keep", "--no-symbols"]);
    let collector = running({
        bucket.with_variables(&mut command);
        command
    });
    let refused = || proxy.done().iter().filter(|(_, fault)| *fault == Fault::Expired).count();
    wait_for("uploads that fail", Duration::from_secs(60), || refused() > 5);
    drop(collector);
    proxy.schedule(|_, _| Fault::Pass);
    bucket.said(&mut bucket.fleet.collect(&["--once", "--keep", "--no-symbols"]));
    assert_eq!(bucket.fetched(), bucket.spooled());
    assert!(unfinished_uploads(&bucket).len() <= 3, "of the one that was killed: {:?}", unfinished_uploads(&bucket));
}

#[test]
#[ignore = "the server takes minutes to build: make stores"]
fn expired_credentials_delete_nothing_and_collecting_goes_on_with_new_ones() {
    let mut bucket = Bucket::s3();
    let proxy = bucket.behind_proxy();
    bucket.record();
    let spooled = bucket.spooled();
    // They expire while recordings are shipped.
    proxy.schedule(|number, _| if number < 20 { Fault::Pass } else { Fault::Expired });
    let mut command = bucket.fleet.collect(&["--interval", "20"]);
    let mut collector = bucket.with_variables(&mut command).stderr(Stdio::piped()).spawn().expect("heaptrace starts");
    let mut stderr = collector.stderr.take().expect("its messages");
    let _collector = Running(collector);
    let refused = || proxy.done().iter().filter(|(_, fault)| *fault == Fault::Expired).count();
    wait_for("refusals", Duration::from_secs(60), || refused() >= 5);
    assert_eq!(bucket.spooled(), spooled, "what the store has not taken stays");
    let mut said = vec![0; 4096];
    let len = std::io::Read::read(&mut stderr, &mut said).unwrap();
    let said = String::from_utf8_lossy(&said[..len]);
    assert!(said.contains("ExpiredToken"), "{said}");
    proxy.schedule(|_, _| Fault::Pass);
    wait_for("the spool to be given up", Duration::from_secs(60), || bucket.spooled().is_empty());
    assert_eq!(bucket.fetched(), spooled);

    // Whoever has the wrong secret gets the reason, in a sentence.
    bucket.variables.insert("AWS_SECRET_ACCESS_KEY", "another".into());
    let output = bucket.output(Command::new(heaptrace()).args(["fleet", "top", &bucket.fleet.store]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("SignatureDoesNotMatch"), "{said}");
    assert!(!said.contains("another") && said.lines().count() == 1, "{said}");
}

#[test]
#[ignore = "the server takes minutes to build: make stores"]
fn a_store_that_refuses_is_given_up_in_few_words() {
    let mut bucket = Bucket::s3();
    let proxy = bucket.behind_proxy();
    bucket.record();
    let spooled = bucket.spooled();
    proxy.schedule(|_, _| Fault::Expired);
    let output = bucket.output(&mut bucket.fleet.collect(&["--once", "--patience", "3", "--interval", "20"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("it stays in the spool"), "{said}");
    assert!(said.contains("in the store: 403 Forbidden; given up after"), "{said}");
    assert!(said.lines().count() < 20, "said once each: {said}");
    assert!(proxy.done().len() < 200, "pauses grow: {}", proxy.done().len());
    assert_eq!(bucket.spooled(), spooled);
}
