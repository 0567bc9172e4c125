//! Broken encrypted connections for the fuzz tests, reproducible from a seed.
//!
//! Some break the handshake, some the sealed messages, and some what is inside the boxes, which only a
//! client with the right key can.

use std::time::Duration;

use anyhow::Result;
use tpu_kernel::wire::Wire;

use crate::curve::{COMMAND, CurveClient, MORE};
use crate::mutate::{Random, Target, mutate_bytes, signed_message};
use crate::raw::{RawPeer, SERVER_KEY, greeting, metadata};

/// The longest a broken connection lasts.
const CONNECTION: Duration = Duration::from_millis(300);

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeting,
    Hello,
    Initiate,
    Metadata,
    /// `MESSAGE`s changed, repeated, out of order, cut.
    Sealed,
    /// What the boxes hold.
    Inside,
}

/// One encrypted connection that goes wrong.
#[derive(Debug)]
pub struct SealedAttack {
    random: Random,
    stage: Stage,
    target: Target,
    /// Flags and bodies to be sealed.
    frames: Vec<(u8, Vec<u8>)>,
    reads: bool,
}

impl SealedAttack {
    pub fn new(random: &mut Random, target: Target, wire: &Wire) -> Self {
        let stage = *random.choose(&[
            Stage::Greeting,
            Stage::Hello,
            Stage::Initiate,
            Stage::Metadata,
            Stage::Sealed,
            Stage::Sealed,
            Stage::Sealed,
            Stage::Inside,
            Stage::Inside,
        ]);
        let mut frames = Vec::new();
        for _ in 0..=random.below(4) {
            frames.extend(valid_frames(random, target, wire));
        }
        let reads = !random.once_in(3);
        Self {
            random: random.clone(),
            stage,
            target,
            frames,
            reads,
        }
    }

    /// Carries it out. That the other side closes early is no error.
    pub async fn run(mut self, endpoint: &str) -> std::io::Result<()> {
        let Ok(peer) = RawPeer::connect(endpoint).await else {
            return Err(std::io::Error::other(
                "the socket does not accept connections any more",
            ));
        };
        let _ = tokio::time::timeout(CONNECTION, self.attack(peer)).await;
        Ok(())
    }

    async fn attack(&mut self, mut peer: RawPeer) -> Result<()> {
        let mut curve = CurveClient::new(SERVER_KEY, &mut self.random);
        let opening = self.broken(Stage::Greeting, greeting(1, "CURVE"));
        peer.write(&opening).await?;
        let hello = self.broken(Stage::Hello, curve.hello());
        peer.write(&hello).await?;
        peer.read(64).await?;
        let (_, welcome) = peer.read_frame().await?;
        curve.welcome(&welcome)?;
        let socket_type = match self.target {
            Target::Router => "DEALER",
            Target::Publisher => "SUB",
            Target::Echo => "REQ",
        };
        let properties = self.broken(Stage::Metadata, metadata(socket_type, b"fuzz"));
        let initiate = self.broken(Stage::Initiate, curve.initiate(&properties));
        peer.write(&initiate).await?;
        let (_, ready) = peer.read_frame().await?;
        curve.ready(&ready)?;
        peer.write(&self.messages(&mut curve)).await?;
        if self.reads && peer.finish().await.is_ok() {
            while !peer.read_some(4096).await?.is_empty() {}
        }
        Ok(())
    }

    fn broken(&mut self, stage: Stage, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.stage == stage {
            for _ in 0..=self.random.below(3) {
                mutate_bytes(&mut self.random, &mut bytes);
            }
        }
        bytes
    }

    fn messages(&mut self, curve: &mut CurveClient) -> Vec<u8> {
        let mut sealed = Vec::new();
        for (mut flags, mut body) in std::mem::take(&mut self.frames) {
            if self.stage == Stage::Inside && self.random.once_in(3) {
                mutate_bytes(&mut self.random, &mut body);
            }
            if self.stage == Stage::Inside && self.random.once_in(8) {
                flags = self.random.bits() as u8;
            }
            sealed.push(curve.seal(flags, &body));
        }
        if self.stage != Stage::Sealed || sealed.is_empty() {
            return sealed.concat();
        }
        let one = self.random.below(sealed.len());
        let other = self.random.below(sealed.len());
        match self.random.below(6) {
            0 => sealed.swap(one, other),
            1 => sealed.insert(other, sealed[one].clone()),
            2 => drop(sealed.remove(one)),
            3 => {
                curve.number = self.random.bits();
                sealed.push(curve.seal(0, b"from elsewhere"));
                sealed.push(curve.seal(0, b"and on"));
            }
            4 => mutate_bytes(&mut self.random, &mut sealed[one]),
            _ => {
                let mut bytes = sealed.concat();
                for _ in 0..=self.random.below(3) {
                    mutate_bytes(&mut self.random, &mut bytes);
                }
                return bytes;
            }
        }
        sealed.concat()
    }
}

fn valid_frames(random: &mut Random, target: Target, wire: &Wire) -> Vec<(u8, Vec<u8>)> {
    let topic = vec![b'x'; random.below(20)];
    let command = |name: &str, body: &[u8]| {
        let bytes = [&[name.len() as u8], name.as_bytes(), body].concat();
        vec![(COMMAND, bytes)]
    };
    match (target, random.below(6)) {
        (_, 0) => command("PING", b"\x00\x0acontext"),
        (_, 1) => command("NOTHING", &topic),
        (Target::Publisher, 2) => command("SUBSCRIBE", &topic),
        (Target::Publisher, 3) => command("CANCEL", &topic),
        (Target::Publisher, _) => vec![(0, [&[1], &topic[..]].concat())],
        (Target::Echo, _) => vec![(MORE, Vec::new()), (0, b"ping".to_vec())],
        (Target::Router, 2) => {
            let most = if random.once_in(20) { 600_000 } else { 4000 };
            vec![(0, vec![7; random.below(most)])]
        }
        (Target::Router, _) => {
            let frames = signed_message(random, wire);
            let last = frames.len().saturating_sub(1);
            let flags = |index| if index < last { MORE } else { 0 };
            frames
                .iter()
                .enumerate()
                .map(|(index, frame)| (flags(index), frame.to_vec()))
                .collect()
        }
    }
}
