//! The io thread: every socket, the outbox's way out, the captured pipes. It never takes the GIL
//! and no signal is delivered to it.
//!
//! Tasks on it: `shell`, `control`, `stdin` (receive), `publish` (send), `welcome` (JEP 65),
//! `crash`, `interrupt`, `felt`, `progress`, `captures` (one task for each pipe), `late`, `debugger`, `feed`, `offer`,
//! `metrics`, `parent`, `sigterm`, `lifecycle`; the heartbeat is the echo's own.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime;
use tokio::time::Instant;

use crate::capture::{self, Capture};
use crate::connection::{Connection, ConnectionError};
use crate::crash;
use crate::debugger;
use crate::feed;
use crate::felt;
use crate::interrupt;
use crate::kernel::Kernel;
use crate::late;
use crate::lifecycle;
use crate::metrics;
use crate::offer;
use crate::outbox::Publication;
use crate::outlet::{Outlet, publish};
use crate::parent::Channel;
use crate::process;
use crate::progress;
use crate::session;
use crate::wire::{EMPTY_OBJECT, Message, Wire};
use crate::zmtp::{Echo, Incoming, Limits, Publisher, Router};

/// Why a kernel does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("cannot bind the {channel} socket to `{endpoint}`: {source}. {}", advice(.source))]
    Bind {
        channel: &'static str,
        endpoint: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot start the kernel's io thread: {0}")]
    System(#[from] io::Error),
}

/// What to do where a socket cannot be bound.
fn advice(fault: &io::Error) -> &'static str {
    match fault.kind() {
        io::ErrorKind::AddrInUse => {
            "Another process holds it: start the kernel again, the server picks new ports"
        }
        io::ErrorKind::AddrNotAvailable => {
            "This machine has no such address: correct `ip` in the connection file, or the server's setting for it"
        }
        io::ErrorKind::PermissionDenied => {
            "This user may not: give a port above 1023, or a folder this user can write to"
        }
        _ => "See `ip`, `transport` and the ports in the connection file",
    }
}

struct Sockets {
    shell: Router,
    control: Router,
    stdin: Router,
    iopub: Publisher,
    _heartbeat: Echo,
}

/// Read the connection file, bind the sockets, capture fd 1 and 2 and start the io thread. The
/// calling thread becomes the main thread. `python` is the interpreter's version.
pub fn start(connection_file: &Path, python: &str) -> Result<Arc<Kernel>, StartError> {
    let connection = Connection::read(connection_file)?;
    let sigterm = process::install_handlers()?.duplicate()?;
    crash::install()?;
    let (bound_sender, bound) = mpsc::channel();
    let (kernel_sender, kernel_receiver) = mpsc::channel::<Arc<Kernel>>();
    let for_thread = connection.clone();
    std::thread::Builder::new()
        .name("tpu-kernel-io".into())
        .spawn(move || {
            process::block_signals();
            let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return bound_sender.send(Err(error.into())).unwrap_or(()),
            };
            runtime.block_on(async {
                match bind(&for_thread).await {
                    Err(error) => bound_sender.send(Err(error)).unwrap_or(()),
                    Ok(sockets) => {
                        let _ = bound_sender.send(Ok(()));
                        if let Ok(kernel) = kernel_receiver.recv() {
                            serve(kernel, sockets, sigterm).await;
                        }
                    }
                }
            });
        })?;
    let gone = || io::Error::other("it ended before it had bound its sockets");
    bound.recv().map_err(|_| gone())??;
    // Only now: until here errors go to the real stderr.
    let kernel = Arc::new(Kernel::new(connection, python, Capture::install()?)?);
    kernel_sender
        .send(Arc::clone(&kernel))
        .map_err(|_| gone())?;
    let owner = kernel.owner().to_owned();
    std::thread::Builder::new()
        .name("tpu-kernel-sweep".into())
        .spawn(move || {
            process::block_signals();
            process::end_left_over(&owner);
            tpu_kernel_place::sweep();
        })?;
    Ok(kernel)
}

async fn bind(connection: &Connection) -> Result<Sockets, StartError> {
    let info = &connection.info;
    let at = |channel: &'static str, port: u16| (channel, connection.endpoint(port));
    let failed = |(channel, endpoint): (&'static str, String)| {
        move |source| StartError::Bind {
            channel,
            endpoint,
            source,
        }
    };
    let security = &connection.security;
    // iopub first: who has an answer on shell may subscribe and must be heard.
    let place = at("iopub", info.iopub_port);
    let iopub = Publisher::bind_with(&place.1, Limits::PUBLISHER, security)
        .await
        .map_err(failed(place))?;
    let place = at("control", info.control_port);
    let control = Router::bind_with(&place.1, Limits::ROUTER, security)
        .await
        .map_err(failed(place))?;
    let place = at("stdin", info.stdin_port);
    let stdin = Router::bind_with(&place.1, Limits::ROUTER, security)
        .await
        .map_err(failed(place))?;
    let place = at("heartbeat", info.hb_port);
    let heartbeat = Echo::bind_with(&place.1, Limits::ECHO, security)
        .await
        .map_err(failed(place))?;
    let place = at("shell", info.shell_port);
    let shell = Router::bind_with(&place.1, Limits::ROUTER, security)
        .await
        .map_err(failed(place))?;
    Ok(Sockets {
        shell,
        control,
        stdin,
        iopub,
        _heartbeat: heartbeat,
    })
}

/// What is not signed with our key, or was seen before, is dropped: it may be anyone's.
fn decode(wire: &Wire, incoming: Incoming) -> Option<Message> {
    let mut message = wire.decode(incoming.frames).ok()?;
    message.identities.insert(0, incoming.peer);
    Some(message)
}

async fn serve(kernel: Arc<Kernel>, sockets: Sockets, sigterm: OwnedFd) {
    let Sockets {
        shell,
        control,
        mut stdin,
        mut iopub,
        ..
    } = sockets;
    let wire = Arc::new(Wire::new(&kernel.connection.info.key, &kernel.session_id));
    let outlet = Arc::new(Outlet {
        wire: Arc::clone(&wire),
        shell: shell.sender(),
        control: control.sender(),
        stdin: stdin.sender(),
        iopub: iopub.sender(),
        topic: format!("kernel.{}", kernel.session_id),
    });
    for (channel, router) in [(Channel::Shell, shell), (Channel::Control, control)] {
        tokio::spawn(receive(
            Arc::clone(&kernel),
            Arc::clone(&wire),
            channel,
            router,
        ));
    }
    {
        let (kernel, wire) = (Arc::clone(&kernel), Arc::clone(&wire));
        tokio::spawn(async move {
            loop {
                let incoming = stdin.recv().await;
                if let Some(reply) = decode(&wire, incoming)
                    && reply.header.msg_type == "input_reply"
                {
                    kernel.input.deliver(&reply);
                }
            }
        });
    }
    {
        let outlet = Arc::clone(&outlet);
        tokio::spawn(async move {
            loop {
                let subscribed = iopub.next_subscription().await;
                outlet.welcome(subscribed.peer, &subscribed.topic);
            }
        });
    }
    {
        let outlet = Arc::clone(&outlet);
        let flush = move |deadline| async move { outlet.flush(deadline).await };
        tokio::spawn(crash::watch(Arc::clone(&kernel), flush));
    }
    tokio::spawn(interrupt::watch(Arc::clone(&kernel)));
    tokio::spawn(felt::watch(Arc::clone(&kernel)));
    tokio::spawn(progress::watch(Arc::clone(&kernel)));
    tokio::spawn(publish(Arc::clone(&kernel), Arc::clone(&outlet)));
    tokio::spawn(capture::watch(Arc::clone(&kernel)));
    tokio::spawn(late::report(Arc::clone(&kernel)));
    tokio::spawn(debugger::run(Arc::clone(&kernel)));
    tokio::spawn(feed::run(Arc::clone(&kernel), outlet.shell.clone()));
    tokio::spawn(offer::run(Arc::clone(&kernel)));
    tokio::spawn(metrics::run(Arc::clone(&kernel)));
    tokio::spawn(stop_on(Arc::clone(&kernel), sigterm));
    match process::watch_parent() {
        Ok(Some(parent)) => drop(tokio::spawn(stop_on(Arc::clone(&kernel), parent))),
        Ok(None) => {}
        Err(_) => kernel.begin_stop(),
    }
    outlet
        .publish(Publication {
            msg_type: "status".into(),
            parent: EMPTY_OBJECT,
            metadata: EMPTY_OBJECT,
            content: Bytes::from_static(br#"{"execution_state":"starting"}"#),
            buffers: Vec::new(),
        })
        .await;

    lifecycle::run(Arc::clone(&kernel)).await;
    kernel.capture.drain_all(|name, owner, text| {
        kernel.write_captured(name, owner, text);
    });
    let deadline = Instant::now() + lifecycle::LAST_FLUSH;
    while !kernel.outbox.is_empty() && Instant::now() < deadline {
        kernel.outbox.hurry();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    outlet.flush(deadline).await;
    lifecycle::end(&kernel).await;
}

async fn receive(kernel: Arc<Kernel>, wire: Arc<Wire>, channel: Channel, mut router: Router) {
    loop {
        let incoming = router.recv().await;
        if let Some(message) = decode(&wire, incoming) {
            session::handle(&kernel, channel, message);
        }
    }
}

/// Stop the kernel when `fd` becomes readable.
async fn stop_on(kernel: Arc<Kernel>, fd: OwnedFd) {
    // SAFETY: the descriptor is owned and open until the watcher is dropped.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    if let Ok(watched) = watched
        && watched.readable().await.is_ok()
    {
        let signal = process::terminated_by();
        if signal != 0 {
            kernel.exit_code.store(128 + signal, Ordering::Release);
        }
        kernel.begin_stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_socket_that_cannot_be_bound_fits_the_fault() {
        let said = |fault: i32| {
            let error = StartError::Bind {
                channel: "shell",
                endpoint: "tcp://192.0.2.1:80".into(),
                source: io::Error::from_raw_os_error(fault),
            };
            error.to_string()
        };
        assert_eq!(
            said(libc::EADDRINUSE),
            "cannot bind the shell socket to `tcp://192.0.2.1:80`: Address already in use (os error 98). \
             Another process holds it: start the kernel again, the server picks new ports"
        );
        assert_eq!(
            said(libc::EADDRNOTAVAIL),
            "cannot bind the shell socket to `tcp://192.0.2.1:80`: Cannot assign requested address (os error 99). \
             This machine has no such address: correct `ip` in the connection file, or the server's setting for it"
        );
    }
}
