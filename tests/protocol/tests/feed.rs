//! The live feed as a front end in Rust sees it: answered without Python, silent when nothing happens.

use std::time::{Duration, Instant};

use anyhow::Result;
use protocol_tests::frontend::FrontEnd;
use serde_json::json;

#[tokio::test]
async fn a_panel_is_told_of_a_cell_that_holds_the_gil_and_then_of_its_end() -> Result<()> {
    let mut front = FrontEnd::start().await?;
    front.run("import ctypes").await?;
    let cell = front
        .send_cell("print('begun', flush=True); ctypes.PyDLL(None).usleep(3_000_000)")
        .await?;
    front.wait_for_text(&cell, "begun").await?;

    let asked = Instant::now();
    let open = json!({"comm_id": "panel", "target_name": "tpu.stats", "data": {"v": 7}});
    let opened = front.send("comm_open", open).await?;
    let first = front.wait_for(&opened, "comm_msg").await?;
    assert!(asked.elapsed() < Duration::from_secs(2));
    assert_eq!(first.content["comm_id"], "panel");
    let sample = &first.content["data"];
    assert_eq!(sample["v"], 1);
    assert_eq!(sample["state"], "busy");
    assert_eq!(sample["cell"]["count"], 2);
    assert_eq!(sample["cells"][1]["t1"], json!(null));

    // Python has no say in any of it, so an order is refused, not kept.
    let order = json!({"comm_id": "panel", "data": {"do": "free"}});
    front.send("comm_msg", order).await?;
    let refused = front.wait_for(&opened, "comm_msg").await?;
    assert_eq!(
        refused.content["data"]["error"],
        "a cell runs: this waits for its end, or interrupt it first"
    );

    let last = loop {
        let sample = front.wait_for(&opened, "comm_msg").await?.content;
        if sample["data"]["state"] == "idle" {
            break sample;
        }
    };
    assert_eq!(last["data"]["cell"], json!(null));
    assert!(last["data"]["cells"][0]["t1"].is_f64());
    let answer = front.answer(&cell).await?;
    assert_eq!(answer.text("stdout"), "begun\n");
    front
        .send("comm_close", json!({"comm_id": "panel", "data": {}}))
        .await?;
    Ok(())
}
