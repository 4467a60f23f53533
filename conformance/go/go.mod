module softring.test/rings

go 1.22
