//! libsoftring.so
