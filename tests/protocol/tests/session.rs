//! The installed kernel as a front end sees it, message by message.

use std::time::Duration;

use anyhow::Result;
use protocol_tests::frontend::FrontEnd;
use serde_json::{Value, json};

#[tokio::test]
async fn kernel_info_is_whole() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    let answer = front.request("kernel_info_request", json!({})).await?;
    assert_eq!(answer.sequence(), ["busy", "idle"]);
    let content = &answer.reply.content;
    assert_eq!(content["status"], "ok");
    assert_eq!(content["protocol_version"], "5.5");
    assert_eq!(content["implementation"], "pytorch-tpu");
    assert_eq!(content["language_info"]["name"], "python");
    assert_eq!(content["language_info"]["file_extension"], ".py");
    assert_eq!(content["language_info"]["mimetype"], "text/x-python");
    assert_eq!(content["language_info"]["nbconvert_exporter"], "python");
    assert_eq!(content["language_info"]["pygments_lexer"], "ipython3");
    assert_eq!(
        content["language_info"]["codemirror_mode"],
        json!({"name": "ipython", "version": 3})
    );
    assert!(
        content["help_links"]
            .as_array()
            .is_some_and(|links| links.len() >= 3)
    );

    // Front ends keep the first answer in the notebook, so the version is whole from the start.
    let version = front
        .run("import platform; platform.python_version()")
        .await?;
    let shown = &version.published[2].content["data"]["text/plain"];
    let again = front.control("kernel_info_request", json!({})).await?;
    for info in [content, &again.reply.content] {
        let told = info["language_info"]["version"].as_str().unwrap();
        assert_eq!(format!("'{told}'"), *shown);
    }
    front.close().await
}

#[tokio::test]
async fn busy_and_idle_surround_a_cell_and_all_of_it_names_the_request() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    let msg_id = front.send_cell("print('a'); 6 * 7").await?;
    let answer = front.answer(&msg_id).await?;
    assert_eq!(
        answer.sequence(),
        ["busy", "execute_input", "stream", "execute_result", "idle"]
    );
    assert_eq!(
        answer.published[1].content,
        json!({"code": "print('a'); 6 * 7", "execution_count": 1})
    );
    assert_eq!(answer.text("stdout"), "a\n");
    assert_eq!(
        answer.published[3].content["data"],
        json!({"text/plain": "42"})
    );
    assert_eq!(answer.published[3].content["execution_count"], 1);
    assert_eq!(answer.reply.content["status"], "ok");
    assert_eq!(answer.reply.content["execution_count"], 1);
    assert!(
        answer.reply.metadata["started"]
            .as_str()
            .is_some_and(|date| date.ends_with('Z'))
    );
    front.close().await
}

#[tokio::test]
async fn a_silent_cell_shows_nothing_and_counts_nothing() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    let content = json!({"code": "x = 5", "silent": true});
    assert_eq!(
        front.request("execute_request", content).await?.sequence(),
        ["busy", "idle"]
    );
    let content = json!({"code": "1", "store_history": false, "user_expressions": {"double": "x * 2", "bad": "y"}});
    let answer = front.request("execute_request", content).await?;
    assert_eq!(
        answer.reply.content["user_expressions"]["double"]["data"]["text/plain"],
        "10"
    );
    assert_eq!(
        answer.reply.content["user_expressions"]["bad"]["ename"],
        "NameError"
    );
    assert_eq!(front.run("x").await?.reply.content["execution_count"], 1);
    front.close().await
}

#[tokio::test]
async fn cells_that_wait_behind_an_error_are_aborted_in_order_and_a_new_run_is_not() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    let failing = front.send_cell("import time; time.sleep(0.3); 1/0").await?;
    let waiting = [
        front.send_cell("print(1)").await?,
        front.send_cell("print(2)").await?,
    ];
    let answer = front.answer(&failing).await?;
    assert_eq!(
        answer.sequence(),
        ["busy", "execute_input", "error", "idle"]
    );
    assert_eq!(answer.reply.content["ename"], "ZeroDivisionError");
    assert_eq!(answer.reply.content["evalue"], "division by zero");
    for msg_id in &waiting {
        let aborted = front.answer(msg_id).await?;
        assert_eq!(aborted.reply.content, json!({"status": "aborted"}));
        assert_eq!(aborted.sequence(), ["busy", "idle"]);
    }
    for _ in 0..20 {
        assert_eq!(front.run("1/0").await?.reply.content["status"], "error");
        assert_eq!(front.run("print(3)").await?.text("stdout"), "3\n");
    }
    let content = json!({"code": "1/0", "stop_on_error": false});
    let failing = front.send("execute_request", content).await?;
    let next = front.send_cell("print(4)").await?;
    assert_eq!(
        front.answer(&failing).await?.reply.content["status"],
        "error"
    );
    assert_eq!(front.answer(&next).await?.text("stdout"), "4\n");
    front.close().await
}

#[tokio::test]
async fn what_cannot_be_read_is_answered_with_an_error_and_nothing_ends() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    for msg_type in [
        "execute_request",
        "complete_request",
        "kernel_info_request",
        "no_such_request",
    ] {
        for content in [&b"[]"[..], b"{", b"{\"code\": \xff}", b"nonsense"] {
            let header = front.header(msg_type, json!({}));
            let frames = front.frames(&header, content);
            front.send_frames(frames).await?;
            let answer = front.answer(header["msg_id"].as_str().unwrap()).await?;
            assert_eq!(
                answer.reply.msg_type(),
                msg_type.replace("request", "reply")
            );
            assert_eq!(answer.reply.content["status"], "error");
            assert_eq!(answer.reply.content["ename"], "MalformedRequest");
            assert_eq!(answer.sequence(), ["busy", "idle"]);
        }
    }
    let answer = front.request("no_such_request", json!({})).await?;
    assert_eq!(answer.reply.content["ename"], "UnknownMessageType");
    for content in [
        json!({}),
        json!({"code": null}),
        json!({"code": 5}),
        json!({"code": "", "cursor_pos": null}),
        json!({"code": "", "cursor_pos": -7}),
        json!({"code": "é".repeat(3), "cursor_pos": 10_000_000}),
    ] {
        for msg_type in [
            "execute_request",
            "complete_request",
            "inspect_request",
            "is_complete_request",
            "history_request",
        ] {
            let answer = front.request(msg_type, content.clone()).await?;
            assert!(
                answer.reply.content["status"].is_string(),
                "{msg_type} {content}: {:?}",
                answer.reply
            );
            assert_eq!(answer.sequence().first().map(String::as_str), Some("busy"));
        }
    }
    assert_eq!(
        front.run("print('still here')").await?.text("stdout"),
        "still here\n"
    );
    front.close().await
}

#[tokio::test]
async fn a_lone_surrogate_in_a_cell_runs() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    let header = front.header("execute_request", json!({}));
    let frames = front.frames(&header, br#"{"code": "len('\ud83d')"}"#);
    front.send_frames(frames).await?;
    let answer = front.answer(header["msg_id"].as_str().unwrap()).await?;
    assert_eq!(answer.reply.content["status"], "ok", "{:?}", answer.reply);
    let printed = front.run("print('a\\ud83db')").await?;
    assert_eq!(printed.text("stdout"), "a\\ud83db\n");
    front.close().await
}

#[tokio::test]
async fn a_replayed_request_runs_once() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    front.run("n = 0").await?;
    let header = front.header("execute_request", json!({}));
    let frames = front.frames(&header, json!({"code": "n += 1"}).to_string().as_bytes());
    front.send_frames(frames.clone()).await?;
    front.send_frames(frames).await?;
    front.answer(header["msg_id"].as_str().unwrap()).await?;
    assert_eq!(front.run("print(n)").await?.text("stdout"), "1\n");
    front.close().await
}

#[tokio::test]
async fn header_fields_unknown_to_the_kernel_come_back_in_the_parent_header() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    let extra = json!({"subshell_id": null, "date": "2026-01-02T03:04:05.600000+01:00", "x": [1, {"y": 2.50}]});
    let header = front.header("kernel_info_request", extra);
    let frames = front.frames(&header, b"{}");
    front.send_frames(frames).await?;
    let answer = front.answer(header["msg_id"].as_str().unwrap()).await?;
    assert_eq!(answer.reply.parent, header);
    assert!(
        answer
            .published
            .iter()
            .all(|message| message.parent == header)
    );
    front.close().await
}

#[tokio::test]
async fn complete_and_inspect_are_answered_while_a_cell_runs_and_the_cell_stays_busy() -> Result<()>
{
    let mut front = FrontEnd::start().await?;
    front
        .run("import time, threading; value = 'text'; go = threading.Event()")
        .await?;
    let cell = front.send_cell("print('started'); go.wait(30)").await?;
    front.wait_for_text(&cell, "started").await?;
    let complete = front
        .request(
            "complete_request",
            json!({"code": "value.upp", "cursor_pos": 9}),
        )
        .await?;
    let content = &complete.reply.content;
    assert_eq!(
        (&content["matches"], &content["cursor_start"]),
        (&json!(["upper"]), &json!(6))
    );
    assert_eq!(complete.sequence(), ["busy", "idle"]);
    let inspect = front
        .request(
            "inspect_request",
            json!({"code": "value", "cursor_pos": 3, "detail_level": 0}),
        )
        .await?;
    assert_eq!(inspect.reply.content["found"], true);
    let state = front.wait_for(&cell, "status").await?;
    assert_eq!(
        state.content["execution_state"], "busy",
        "the indicator must not show idle while a cell runs"
    );
    front.control("interrupt_request", json!({})).await?;
    let answer = front.answer(&cell).await?;
    assert_eq!(answer.reply.content["ename"], "KeyboardInterrupt");
    front.close().await
}

#[tokio::test]
async fn an_interrupt_ends_each_kind_of_wait_and_the_next_cell_runs() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    for code in [
        "while True: pass",
        "import time; time.sleep(60)",
        "import asyncio; await asyncio.sleep(60)",
        "!sleep 60",
    ] {
        let cell = front
            .send_cell(&format!("print('started', flush=True)\n{code}"))
            .await?;
        front.wait_for_text(&cell, "started").await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let interrupt = front.control("interrupt_request", json!({})).await?;
        assert_eq!(interrupt.reply.content, json!({"status": "ok"}));
        let answer = front.answer(&cell).await?;
        if code != "!sleep 60" {
            assert_eq!(answer.reply.content["ename"], "KeyboardInterrupt", "{code}");
        }
        assert_eq!(
            front.run("print('next')").await?.text("stdout"),
            "next\n",
            "{code}"
        );
    }
    front.control("interrupt_request", json!({})).await?;
    assert_eq!(front.run("print('idle')").await?.text("stdout"), "idle\n");
    front.close().await
}

#[tokio::test]
async fn an_interrupted_question_leaves_nothing_behind() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    let cell = front.send_cell("input('n? ')").await?;
    let first = front.question().await?;
    assert_eq!(first.content, json!({"prompt": "n? ", "password": false}));
    front.control("interrupt_request", json!({})).await?;
    assert_eq!(
        front.answer(&cell).await?.reply.content["ename"],
        "KeyboardInterrupt"
    );

    let cell = front
        .send_cell("import getpass; print(input('m? ') + getpass.getpass('p? '))")
        .await?;
    let second = front.question().await?;
    front.reply_to(&first, "late").await?;
    front.reply_to(&second, "in time, ").await?;
    let third = front.question().await?;
    assert_eq!(third.content, json!({"prompt": "p? ", "password": true}));
    front.reply_to(&third, "secret").await?;
    assert_eq!(
        front.answer(&cell).await?.text("stdout"),
        "in time, secret\n"
    );

    let answer = front
        .request(
            "execute_request",
            json!({"code": "input()", "allow_stdin": false}),
        )
        .await?;
    assert_eq!(answer.reply.content["ename"], "StdinNotImplementedError");
    front.close().await
}

#[tokio::test]
async fn ports_comms_and_heartbeat_are_answered() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    let connect = front
        .request("connect_request", json!({}))
        .await?
        .reply
        .content;
    for port in [
        "shell_port",
        "iopub_port",
        "stdin_port",
        "control_port",
        "hb_port",
    ] {
        assert_eq!(connect[port], front.info[port]);
    }
    let comms = front
        .request("comm_info_request", json!({}))
        .await?
        .reply
        .content;
    assert_eq!(comms, json!({"status": "ok", "comms": {}}));
    assert_eq!(front.heartbeat(b"\x00ping").await?, ["\u{0}ping"]);
    front.close().await
}

#[tokio::test]
async fn history_by_range_has_the_cells_of_this_session() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    for code in ["a = 1", "b = 2", "a + b"] {
        front.run(code).await?;
    }
    let range = json!({"hist_access_type": "range", "session": 0, "start": 1, "stop": 3, "raw": true, "output": false});
    let answer = front.request("history_request", range).await?;
    let cells: Vec<&Value> = answer.reply.content["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row[2])
        .collect();
    assert_eq!(cells, [&json!("a = 1"), &json!("b = 2")]);
    let range = json!({"hist_access_type": "range", "session": 0, "start": 3, "stop": 4, "raw": true, "output": true});
    let answer = front.request("history_request", range).await?;
    assert_eq!(answer.reply.content["history"][0][2], json!(["a + b", "3"]));
    front.close().await
}

#[tokio::test]
async fn shutdown_of_a_busy_kernel_runs_atexit_and_leaves_no_child() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    let file = std::env::temp_dir().join(format!("atexit-{}", front.kernel.id()));
    let code = format!(
        "import atexit, subprocess\n_ = atexit.register(lambda: open({file:?}, 'w').write('ran'))"
    );
    front.run(&code).await?;
    let children = "c = [subprocess.Popen(['sleep', '600']), subprocess.Popen('sleep 600 & echo $!', shell=True)]";
    front.run(&format!("{children}\nprint(c[0].pid)")).await?;
    let cell = front.send_cell("print('started')\nwhile True:\n  try: import time; time.sleep(60)\n  except KeyboardInterrupt: raise")
        .await?;
    front.wait_for_text(&cell, "started").await?;
    let group = front.kernel.id();
    front
        .control("shutdown_request", json!({"restart": true}))
        .await?;
    let took = front.wait_for_end().await?;
    assert!(
        took < Duration::from_millis(2_500),
        "a server sends SIGTERM after 2.5 s; it took {took:?}"
    );
    assert_eq!(std::fs::read_to_string(&file)?, "ran");
    std::fs::remove_file(&file)?;
    // A zombie has ended; it waits for whoever is process 1 here.
    let list = ["-o", "stat=,pid=,args=", "-s", &group.to_string()];
    let left = String::from_utf8(std::process::Command::new("ps").args(list).output()?.stdout)?;
    let living: Vec<&str> = left.lines().filter(|line| !line.starts_with('Z')).collect();
    assert_eq!(living, Vec::<&str>::new());
    Ok(())
}

#[tokio::test]
async fn the_client_of_runtimed_is_understood() -> Result<()> {
    use jupyter_protocol::{
        ConnectionInfo, ExecuteRequest, JupyterMessage, JupyterMessageContent, Status,
    };
    let mut front = FrontEnd::start().await?;
    let info: ConnectionInfo = serde_json::from_value(front.info.clone())?;
    let identity = jupyter_zmq_client::peer_identity_for_session("another")?;
    let mut shell = jupyter_zmq_client::create_client_shell_connection_with_identity(
        &info, "another", identity,
    )
    .await?;
    let mut iopub =
        jupyter_zmq_client::create_client_iopub_connection(&info, "", "another").await?;
    front.run("'both are connected'").await?;
    let request = JupyterMessage::new(ExecuteRequest::new("print(1 + 1)".into()), None);
    let msg_id = request.header.msg_id.clone();
    shell.send(request).await?;
    let reply = shell.read().await?;
    assert!(
        matches!(reply.content, JupyterMessageContent::ExecuteReply(_)),
        "{reply:?}"
    );
    let mut seen = Vec::new();
    loop {
        let message = iopub.read().await?;
        if message
            .parent_header
            .as_ref()
            .is_none_or(|parent| parent.msg_id != msg_id)
        {
            continue;
        }
        seen.push(message.header.msg_type.clone());
        let idle = Status::idle();
        if matches!(&message.content, JupyterMessageContent::Status(s) if s.execution_state == idle.execution_state)
        {
            break;
        }
    }
    assert_eq!(seen, ["status", "execute_input", "stream", "status"]);
    Ok(())
}
