//! Jupyter transport, wire and session.
