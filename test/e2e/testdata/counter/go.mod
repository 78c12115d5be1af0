module counter

go 1.26.0

require github.com/deltarouter/deltarouter/sdk/go v0.0.0

replace github.com/deltarouter/deltarouter/sdk/go => ../../../../sdk/go
