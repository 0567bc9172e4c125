//! Everything that leaves the kernel, in the order it was written. Any thread puts in, the io
//! thread takes out. Owns coalescing of streams, backpressure and the cap on what a cell prints;
//! knows nothing of sockets.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::lock::lock;
use crate::parent::{Channel, Parent};
use crate::tally::{Cap, Tally};

/// Writers wait while more than this many bytes are unsent.
pub const BACKPRESSURE_BYTES: usize = 8 << 20;
/// A stream message is closed at the end of the line that reaches this size.
pub const STREAM_CHUNK_BYTES: usize = 1 << 20;

/// How long the first line of a pause may stay without its newline.
const LINE_PATIENCE: Duration = Duration::from_millis(1);

/// `stdout` or `stderr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamName {
    Stdout,
    Stderr,
}

impl StreamName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    /// Its place in a pair of the two.
    pub fn index(self) -> usize {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }
}

/// A message on iopub.
#[derive(Debug, Clone)]
pub struct Publication {
    pub msg_type: String,
    /// `parent_header`; `{}` when nothing caused it.
    pub parent: Bytes,
    pub metadata: Bytes,
    pub content: Bytes,
    pub buffers: Vec<Bytes>,
}

/// A reply on shell or control.
#[derive(Debug, Clone)]
pub struct Reply {
    pub channel: Channel,
    pub parent: Arc<Parent>,
    pub msg_type: String,
    pub metadata: Bytes,
    pub content: Bytes,
}

/// One thing to send.
#[derive(Debug)]
pub enum Entry {
    Stream {
        name: StreamName,
        parent: Option<Arc<Parent>>,
        text: String,
    },
    Publish(Publication),
    Reply(Reply),
    /// `input_request` on stdin, with the id its answer will name.
    Input {
        parent: Arc<Parent>,
        msg_id: String,
        content: Bytes,
    },
    /// Here the person is told how much of this request's text was dropped so far, if any was.
    Dropped(Arc<Parent>),
}

impl Entry {
    fn size(&self) -> usize {
        const ENVELOPE: usize = 512;
        match self {
            Self::Stream { text, .. } => text.len(),
            Self::Publish(p) => {
                ENVELOPE + p.content.len() + p.buffers.iter().map(Bytes::len).sum::<usize>()
            }
            Self::Reply(r) => ENVELOPE + r.content.len(),
            Self::Input { content, .. } => ENVELOPE + content.len(),
            Self::Dropped(_) => ENVELOPE,
        }
    }
}

/// What the io thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// It is at work and looks again by itself.
    Nothing,
    /// It pauses after a stream message, so that a print loop is not one message a line.
    Urgent,
    /// It waits a moment for the end of a line: `print` writes text and newline one by one.
    Line,
    Anything,
}

#[derive(Debug)]
struct State {
    entries: Vec<Entry>,
    bytes: usize,
    /// Bytes taken by the io thread and not yet handed to a socket.
    in_flight: usize,
    awaited: Awaited,
    urgent: bool,
    /// Threads in `wait_for_space`.
    waiting: usize,
    /// Text of these requests is dropped from then on, up to their `Dropped` entries: they were
    /// interrupted, and no front end takes it.
    abandoned: Vec<(Arc<Parent>, Instant)>,
    /// Requests that were answered and of whose text some was dropped since.
    late: Vec<Arc<Parent>>,
}

/// The queue between everyone and the io thread.
#[derive(Debug)]
pub struct Outbox {
    state: Mutex<State>,
    wake: Notify,
    space: Condvar,
    /// Something is in `late`.
    late: Notify,
    cap: Cap,
}

impl Outbox {
    /// With this cap on what one request prints.
    pub fn new(cap: Cap) -> Self {
        Self {
            state: Mutex::new(State {
                entries: Vec::new(),
                bytes: 0,
                in_flight: 0,
                awaited: Awaited::Nothing,
                urgent: false,
                waiting: 0,
                abandoned: Vec::new(),
                late: Vec::new(),
            }),
            wake: Notify::new(),
            space: Condvar::new(),
            late: Notify::new(),
            cap,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Append text to a stream. What is past the cap is counted and not kept. Returns false when the
    /// caller should wait for space.
    pub fn write(&self, name: StreamName, parent: Option<&Arc<Parent>>, text: &str) -> bool {
        if text.is_empty() {
            return true;
        }
        let mut state = self.lock();
        let Some(of) = parent else {
            state.append(name, None, text);
            return self.appended(state, text);
        };
        let (shown, stops) = of.tally.admit(self.cap, name, text);
        if shown > 0 {
            state.append(name, parent, &text[..shown]);
        }
        if stops {
            let notice = Tally::stop_notice(self.cap);
            state.append(StreamName::Stderr, parent, &notice);
        }
        if shown < text.len() && of.tally.is_over() && !state.late.iter().any(|late| late.is(of)) {
            state.late.push(Arc::clone(of));
            self.late.notify_one();
        }
        if shown == 0 && !stops {
            return state.has_space();
        }
        self.appended(state, text)
    }

    fn appended(&self, state: MutexGuard<'_, State>, text: &str) -> bool {
        let weight = if text.ends_with('\n') {
            Awaited::Line
        } else {
            Awaited::Anything
        };
        self.signal(state, weight)
    }

    /// Append a message. It ends the stream message before it and is sent without delay.
    /// Returns false when the caller should wait for space.
    pub fn push(&self, entry: Entry) -> bool {
        self.push_all([entry])
    }

    /// Append messages that belong together.
    pub fn push_all(&self, entries: impl IntoIterator<Item = Entry>) -> bool {
        let mut state = self.lock();
        for entry in entries {
            state.bytes += entry.size();
            state.entries.push(entry);
        }
        state.urgent = true;
        self.signal(state, Awaited::Urgent)
    }

    /// Send what is there now, without waiting for more of a stream.
    pub fn hurry(&self) {
        let mut state = self.lock();
        if !state.entries.is_empty() {
            state.urgent = true;
            self.signal(state, Awaited::Urgent);
        }
    }

    /// Wake the io thread when it waits for something of this weight. `Anything` is the lightest.
    /// False when there is no room for more.
    fn signal(&self, mut state: MutexGuard<'_, State>, weight: Awaited) -> bool {
        let has_space = state.has_space();
        let wakes = match state.awaited {
            Awaited::Nothing => false,
            Awaited::Urgent => weight == Awaited::Urgent,
            Awaited::Line => weight != Awaited::Anything,
            Awaited::Anything => true,
        };
        if wakes {
            state.awaited = Awaited::Nothing;
            drop(state); // it is the first thing that the io thread takes
            self.wake.notify_one();
        }
        has_space
    }

    /// Block this thread until there is room, at most `patience`. True when there is.
    pub fn wait_for_space(&self, patience: Duration) -> bool {
        let full = |state: &mut State| !state.has_space();
        let mut state = self.lock();
        state.waiting += 1;
        let (mut state, _) = self
            .space
            .wait_timeout_while(state, patience, full)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        !full(&mut state)
    }

    /// Is there room for more? For readers that must not block.
    pub fn has_space(&self) -> bool {
        self.lock().has_space()
    }

    /// The request was interrupted and has ended: what it wrote and nobody takes is dropped from
    /// `from` on, so that the front end learns of the end.
    pub fn abandon(&self, parent: &Arc<Parent>, from: Instant) {
        let mut state = self.lock();
        state.abandoned.retain(|(of, _)| !of.is(parent));
        state.abandoned.push((Arc::clone(parent), from));
    }

    /// Is text of this request, taken from the outbox, to be dropped?
    pub fn is_abandoned(&self, parent: &Parent) -> bool {
        let state = self.lock();
        let mut abandoned = state.abandoned.iter();
        abandoned.any(|(of, from)| of.is(parent) && *from <= Instant::now())
    }

    /// All that the request wrote before it ended was sent or dropped.
    pub fn came_to_end_of(&self, parent: &Parent) {
        self.lock().abandoned.retain(|(of, _)| !of.is(parent));
    }

    /// Requests that were answered and of whose text some was dropped since. Waits for the first.
    pub async fn late(&self) -> Vec<Arc<Parent>> {
        loop {
            let late = self.late_now();
            if !late.is_empty() {
                return late;
            }
            self.late.notified().await;
        }
    }

    /// As [`late`](Self::late), without waiting.
    pub fn late_now(&self) -> Vec<Arc<Parent>> {
        std::mem::take(&mut self.lock().late)
    }

    /// Is nothing left to be sent?
    pub fn is_empty(&self) -> bool {
        let state = self.lock();
        state.entries.is_empty() && state.in_flight == 0
    }

    /// Take all entries, waiting until there are some. For the io thread.
    pub async fn take(&self) -> Vec<Entry> {
        loop {
            let unfinished = {
                let mut state = self.lock();
                state.awaited = Awaited::Anything;
                match state.entries.last() {
                    None => None,
                    Some(Entry::Stream { text, .. }) => {
                        Some(!state.urgent && !text.ends_with('\n'))
                    }
                    Some(_) => Some(false),
                }
            };
            match unfinished {
                None => self.wake.notified().await,
                Some(true) => {
                    self.pause(Awaited::Line, LINE_PATIENCE).await;
                    return self.take_all();
                }
                Some(false) => return self.take_all(),
            }
        }
    }

    fn take_all(&self) -> Vec<Entry> {
        let mut state = self.lock();
        state.in_flight = state.bytes;
        state.bytes = 0;
        state.urgent = false;
        state.awaited = Awaited::Nothing;
        let entries = std::mem::take(&mut state.entries);
        drop(state);
        for entry in &entries {
            if let Entry::Stream {
                name,
                parent: Some(parent),
                text,
            } = entry
            {
                parent.transcript.add(*name, text);
            }
        }
        entries
    }

    /// The batch taken last has been handed to the sockets.
    pub fn sent(&self) {
        let mut state = self.lock();
        state.in_flight = 0;
        if state.waiting > 0 {
            drop(state);
            self.space.notify_all();
        }
    }

    /// Let a stream gather for a moment; ends early when something urgent comes.
    pub async fn gather(&self, pause: Duration) {
        self.pause(Awaited::Urgent, pause).await;
    }

    async fn pause(&self, awaited: Awaited, pause: Duration) {
        {
            let mut state = self.lock();
            if state.urgent {
                return;
            }
            state.awaited = awaited;
        }
        let _ = tokio::time::timeout(pause, self.wake.notified()).await;
    }
}

impl State {
    fn append(&mut self, name: StreamName, parent: Option<&Arc<Parent>>, text: &str) {
        self.bytes += text.len();
        match self.entries.last_mut() {
            Some(Entry::Stream {
                name: last,
                parent: of,
                text: so_far,
            }) if *last == name
                && same(of.as_ref(), parent)
                && so_far.len() < STREAM_CHUNK_BYTES =>
            {
                so_far.push_str(text);
            }
            _ => self.entries.push(Entry::Stream {
                name,
                parent: parent.cloned(),
                text: text.to_owned(),
            }),
        }
    }

    fn has_space(&self) -> bool {
        self.bytes + self.in_flight < BACKPRESSURE_BYTES
    }
}

fn same(a: Option<&Arc<Parent>>, b: Option<&Arc<Parent>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.is(b),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(id: &str) -> Arc<Parent> {
        Arc::new(Parent {
            header: Bytes::from_static(b"{}"),
            msg_id: id.into(),
            msg_type: "execute_request".into(),
            cell_id: String::new(),
            identities: Vec::new(),
            allow_stdin: false,
            subshell_id: None,
            tally: Tally::default(),
            transcript: crate::transcript::Transcript::default(),
        })
    }

    fn texts(entries: &[Entry]) -> Vec<(&'static str, String, String)> {
        entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Stream { name, parent, text } => {
                    let id = parent
                        .as_ref()
                        .map(|p| p.msg_id.clone())
                        .unwrap_or_default();
                    Some((name.as_str(), id, text.clone()))
                }
                _ => None,
            })
            .collect()
    }

    #[tokio::test]
    async fn writes_of_one_stream_and_cell_become_one_message_and_order_is_kept() {
        let (outbox, a, b) = (Outbox::new(Cap::default()), parent("a"), parent("b"));
        outbox.write(StreamName::Stdout, Some(&a), "1");
        outbox.write(StreamName::Stdout, Some(&a), "2");
        outbox.write(StreamName::Stderr, Some(&a), "3");
        outbox.write(StreamName::Stdout, Some(&a), "4");
        outbox.write(StreamName::Stdout, Some(&b), "5");
        let got = texts(&outbox.take().await);
        let want = [
            ("stdout", "a", "12"),
            ("stderr", "a", "3"),
            ("stdout", "a", "4"),
            ("stdout", "b", "5"),
        ];
        assert_eq!(got, want.map(|(n, p, t)| (n, p.to_string(), t.to_string())));
    }

    #[tokio::test]
    async fn a_writer_is_told_to_wait_at_8_mib_and_released_once_it_is_sent() {
        let outbox = Outbox::new(Cap::default());
        let a = parent("a");
        assert!(outbox.write(
            StreamName::Stdout,
            Some(&a),
            &"x".repeat(BACKPRESSURE_BYTES - 1)
        ));
        assert!(!outbox.write(StreamName::Stdout, Some(&a), "x"));
        assert!(!outbox.wait_for_space(Duration::from_millis(1)));
        let batch = outbox.take().await;
        assert_eq!(
            batch.len(),
            2,
            "a message is closed at 1 MiB and the next write starts another"
        );
        assert!(!outbox.has_space(), "taken is not yet sent");
        outbox.sent();
        assert!(outbox.wait_for_space(Duration::from_millis(1)));
        assert!(outbox.is_empty());
    }

    #[tokio::test]
    async fn a_cell_is_stopped_at_the_cap_others_are_not() {
        let outbox = Outbox::new(Cap::parse("5").unwrap());
        let (a, b) = (parent("a"), parent("b"));
        for _ in 0..3 {
            outbox.write(StreamName::Stdout, Some(&a), "123");
        }
        outbox.write(StreamName::Stdout, Some(&b), "45678");
        let notice = Tally::stop_notice(Cap::parse("5").unwrap());
        let want = [("a", "12312"), ("a", notice.as_str()), ("b", "45678")];
        let got = texts(&outbox.take().await);
        let got: Vec<_> = got
            .iter()
            .map(|(_, id, text)| (id.as_str(), text.as_str()))
            .collect();
        assert_eq!(got, want);
        assert_eq!((a.tally.dropped(), b.tally.dropped()), (4, 0));
        assert!(outbox.late_now().is_empty(), "its end tells how much");
        a.tally.end();
        outbox.write(StreamName::Stdout, Some(&a), "late");
        outbox.write(StreamName::Stderr, Some(&a), "late");
        let late: Vec<_> = outbox
            .late()
            .await
            .iter()
            .map(|p| p.msg_id.clone())
            .collect();
        assert_eq!(late, ["a"]);
    }

    #[test]
    fn text_of_an_interrupted_cell_is_given_up_until_its_end_is_reached() {
        let outbox = Outbox::new(Cap::default());
        let (a, b, now) = (parent("a"), parent("b"), Instant::now());
        outbox.abandon(&a, now + Duration::from_secs(60));
        assert!(
            !outbox.is_abandoned(&a),
            "front ends have some time to take it"
        );
        outbox.abandon(&a, now);
        assert!(outbox.is_abandoned(&a) && !outbox.is_abandoned(&b));
        outbox.came_to_end_of(&b);
        assert!(outbox.is_abandoned(&a));
        outbox.abandon(&b, now);
        assert!(outbox.is_abandoned(&a) && outbox.is_abandoned(&b));
        outbox.came_to_end_of(&b);
        assert!(outbox.is_abandoned(&a) && !outbox.is_abandoned(&b));
        outbox.came_to_end_of(&a);
        assert!(!outbox.is_abandoned(&a));
    }

    #[tokio::test]
    async fn a_message_cuts_the_pause_of_a_stream_short() {
        let outbox = Arc::new(Outbox::new(Cap::default()));
        let writer = Arc::clone(&outbox);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            writer.push(Entry::Publish(Publication {
                msg_type: "display_data".into(),
                parent: Bytes::new(),
                metadata: Bytes::new(),
                content: Bytes::new(),
                buffers: Vec::new(),
            }));
        });
        tokio::time::timeout(
            Duration::from_secs(20),
            outbox.gather(Duration::from_secs(60)),
        )
        .await
        .unwrap();
        thread.join().unwrap();
        assert_eq!(outbox.take().await.len(), 1);
    }
}
