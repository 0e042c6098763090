//! The loop every system runs on: hub, queue, driver, lease, writer, health, metrics, logs.
