//! Plan, executors, session, transport, server and client.
