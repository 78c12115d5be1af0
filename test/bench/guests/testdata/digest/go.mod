module digest

go 1.26.0

toolchain go1.26.8

require github.com/deltarouter/deltarouter/sdk/go v0.0.0

replace github.com/deltarouter/deltarouter/sdk/go => ../../../../../sdk/go
