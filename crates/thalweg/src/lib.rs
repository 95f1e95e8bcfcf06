//! An embedded database for sensor data.
