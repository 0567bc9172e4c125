//! Broken connections for the fuzz tests, reproducible from a seed.
//!
//! Half of them break ZMTP itself: a valid stream with bytes changed, cut, doubled. Half are valid
//! ZMTP and carry validly signed messages whose JSON was changed, so that what lies behind the
//! signature is reached.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tpu_kernel::wire::Wire;

use crate::raw::{RawPeer, command, frame_header, greeting, message, opening, ready};

/// The longest a broken connection lasts.
const CONNECTION: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// A small pseudo-random generator (SplitMix64): the same seed, the same connections, everywhere.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Which socket is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Router,
    Publisher,
    Echo,
}

/// What a broken connection sends, in pieces, and how it ends.
#[derive(Debug, Clone)]
pub struct Attack {
    pub pieces: Vec<Vec<u8>>,
    /// Whether it waits a little between pieces.
    pub pauses: bool,
    /// Whether it reads what comes before it goes.
    pub reads: bool,
}

impl Attack {
    /// Breaks ZMTP.
    pub fn on_transport(random: &mut Random, target: Target) -> Self {
        let mut bytes = valid_stream(random, target);
        for _ in 0..=random.below(4) {
            mutate_bytes(random, &mut bytes);
        }
        Self::from_bytes(random, &bytes)
    }

    /// Keeps to ZMTP and signs its messages, whose JSON is broken.
    pub fn on_messages(random: &mut Random, wire: &Wire) -> Self {
        let identity = random.bits().to_be_bytes().map(|byte| byte | 1);
        let mut bytes = opening("DEALER", &identity);
        for _ in 0..=random.below(3) {
            bytes.extend(message(&signed_message(random, wire)));
        }
        Self::from_bytes(random, &bytes)
    }

    fn from_bytes(random: &mut Random, bytes: &[u8]) -> Self {
        let mut pieces = Vec::new();
        let mut rest = bytes;
        while rest.len() > 1 && pieces.len() < 8 && !random.once_in(3) {
            let (piece, more) = rest.split_at(1 + random.below(rest.len() - 1));
            pieces.push(piece.to_vec());
            rest = more;
        }
        pieces.push(rest.to_vec());
        Self {
            pieces,
            pauses: random.once_in(4),
            reads: !random.once_in(3),
        }
    }

    /// Carries it out. That the other side closes early is no error.
    pub async fn run(&self, endpoint: &str) -> std::io::Result<()> {
        let Ok(mut peer) = RawPeer::connect(endpoint).await else {
            return Err(std::io::Error::other(
                "the socket does not accept connections any more",
            ));
        };
        let attack = async {
            for piece in &self.pieces {
                if peer.write(piece).await.is_err() {
                    return;
                }
                if self.pauses {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            if self.reads && peer.finish().await.is_ok() {
                while peer
                    .read_some(4096)
                    .await
                    .is_ok_and(|bytes| !bytes.is_empty())
                {}
            }
        };
        let _ = tokio::time::timeout(CONNECTION, attack).await;
        Ok(())
    }
}

fn valid_stream(random: &mut Random, target: Target) -> Vec<u8> {
    let socket_type = match target {
        Target::Router => *random.choose(&["DEALER", "REQ", "ROUTER"]),
        Target::Publisher => *random.choose(&["SUB", "XSUB"]),
        Target::Echo => "REQ",
    };
    let minor = u8::from(random.once_in(2));
    let mut bytes = [greeting(minor, "NULL"), ready(socket_type, b"fuzz")].concat();
    for _ in 0..random.below(5) {
        let topic = vec![b'x'; random.below(20)];
        let part = match (target, random.below(6)) {
            (_, 0) => command("PING", b"\x00\x0acontext"),
            (_, 1) => command("NOTHING", &topic),
            (Target::Publisher, 2) => command("SUBSCRIBE", &topic),
            (Target::Publisher, 3) => command("CANCEL", &topic),
            (Target::Publisher, _) => message(&[[&[1], &topic[..]].concat()]),
            (Target::Echo, _) => message(&[&b""[..], b"ping"]),
            (Target::Router, 2) => message(&vec![topic; 1 + random.below(40)]),
            (Target::Router, _) => message(&[
                &b"<IDS|MSG>"[..],
                b"",
                b"{}",
                b"{}",
                b"{}",
                b"{}",
                &[7; 1000],
            ]),
        };
        bytes.extend(part);
    }
    bytes
}

/// Changes `bytes` in one of the ways that find mistakes in decoders.
pub fn mutate_bytes(random: &mut Random, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        bytes.push(random.bits() as u8);
        return;
    }
    let at = random.below(bytes.len());
    match random.below(8) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = *random.choose(&[0, 1, 2, 3, 4, 6, 7, 0x7f, 0x80, 0xff]),
        2 => bytes.truncate(at),
        3 => {
            bytes.remove(at);
        }
        4 => bytes.insert(at, random.bits() as u8),
        5 => {
            let end = at + random.below((bytes.len() - at).min(64) + 1);
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        6 => {
            let shift = random.below(64);
            let declared = random.bits() >> shift;
            let flags = random.bits() as u8 & 7;
            bytes.splice(at..at, frame_header(flags, declared.max(256)));
        }
        _ => {
            let end = (at + 1 + random.below(16)).min(bytes.len());
            bytes[at..end].fill_with(|| random.bits() as u8);
        }
    }
}

/// The frames of a validly signed message whose JSON is not what it should be.
pub fn signed_message(random: &mut Random, wire: &Wire) -> Vec<Bytes> {
    let (msg_type, content) = template(random);
    let header = json!({
        "msg_id": format!("fuzz-{}", random.bits()), "msg_type": msg_type, "session": "fuzz",
        "username": "fuzz", "date": "2026-11-30T00:00:00.000000Z", "version": "5.5",
        "subshell_id": null,
    });
    let mut parts = [header, json!({}), json!({"cellId": "fuzz"}), content];
    let mut texts: Vec<Vec<u8>> = Vec::new();
    let broken = random.below(4);
    for (index, part) in parts.iter_mut().enumerate() {
        if index == broken || random.once_in(6) {
            for _ in 0..=random.below(3) {
                mutate_json(random, part, 0);
            }
        }
        let mut text = part.to_string().into_bytes();
        if index == broken && random.once_in(2) {
            mutate_json_text(random, &mut text);
        }
        texts.push(text);
    }
    let parts: Vec<Bytes> = texts.into_iter().map(Bytes::from).collect();
    let [header, parent, metadata, content] = &parts[..] else {
        return Vec::new();
    };
    let buffers: Vec<Bytes> = (0..random.below(3))
        .map(|_| Bytes::from(vec![1; random.below(3000)]))
        .collect();
    let mut frames = wire.assemble(&[], [header, parent, metadata, content], &buffers);
    if random.once_in(12) {
        frames.truncate(random.below(frames.len()));
    }
    frames
}

/// Requests whose execution changes nothing, so that they may be sent to a living kernel.
fn template(random: &mut Random) -> (&'static str, Value) {
    let code = *random.choose(&["1 + 1", "", "x = [\n", "print('é')", "await 1", "%%", "\\"]);
    random
        .choose(&[
            ("execute_request", json!({
                "code": code, "silent": false, "store_history": false, "user_expressions": {"a": "1"},
                "allow_stdin": false, "stop_on_error": true,
            })),
            ("kernel_info_request", json!({})),
            ("complete_request", json!({"code": code, "cursor_pos": 2})),
            ("inspect_request", json!({"code": code, "cursor_pos": 1, "detail_level": 0})),
            ("is_complete_request", json!({"code": code})),
            ("history_request", json!({
                "hist_access_type": "tail", "n": 3, "output": false, "raw": true,
            })),
            ("comm_info_request", json!({"target_name": "fuzz"})),
            ("comm_open", json!({"comm_id": "c", "target_name": "fuzz", "data": {}})),
            ("comm_msg", json!({"comm_id": "c", "data": {"method": "update"}})),
            ("comm_close", json!({"comm_id": "c", "data": {}})),
            ("input_reply", json!({"value": "fuzz"})),
            ("unknown_request", json!({"a": 1})),
        ])
        .clone()
}

fn mutate_json(random: &mut Random, value: &mut Value, depth: usize) {
    if depth < 4 && !random.once_in(3) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                let keys: Vec<String> = fields.keys().cloned().collect();
                let key = random.choose(&keys);
                match random.below(6) {
                    0 => {
                        fields.remove(key);
                    }
                    1 => {
                        fields.insert(format!("{key}\u{0}"), odd_value(random));
                    }
                    _ => {
                        if let Some(field) = fields.get_mut(key) {
                            mutate_json(random, field, depth + 1);
                        }
                    }
                }
                return;
            }
            Value::Array(items) if !items.is_empty() => {
                let index = random.below(items.len());
                mutate_json(random, &mut items[index], depth + 1);
                return;
            }
            _ => {}
        }
    }
    *value = odd_value(random);
}

fn odd_value(random: &mut Random) -> Value {
    match random.below(14) {
        0 => Value::Null,
        1 => Value::Bool(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(1e308),
        5 => json!(i64::MIN),
        6 => json!(""),
        7 => json!("\u{0}\u{1}\u{7f}"),
        8 => json!("😀é\u{2028}"),
        9 => json!("x".repeat(random.below(20_000))),
        10 => json!([]),
        11 => json!([[[[null]]], {}]),
        12 => Value::Object(Map::new()),
        _ => json!({"": {"": ""}}),
    }
}

fn mutate_json_text(random: &mut Random, text: &mut Vec<u8>) {
    let at = random.below(text.len() + 1);
    let odd: &[u8] = random.choose::<&[u8]>(&[
        b"NaN",
        b"\\ud800",
        b"\"\\ud800\"",
        b"\xff",
        b"\xed\xa0\x80",
        b"{",
        b"]",
        b"\"",
        b",",
        b"1e999",
        b"-",
        b"\\u00",
        b"\x00",
        b"[[[[[[[[[[[[[[[[",
    ]);
    match random.below(4) {
        0 => text.truncate(at),
        1 => {
            text.splice(at..at, odd.iter().copied());
        }
        2 => {
            let deep = 1 + random.below(20_000);
            *text = [b"[".repeat(deep), b"]".repeat(deep)].concat();
        }
        _ => mutate_bytes(random, text),
    }
}
