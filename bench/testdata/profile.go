package main

import (
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
)

// profileVariable has the file for the CPU profile of the process.
const profileVariable = "ROUTER_PROFILE"

// init profiles the process from its start until SIGTERM. This file is no part of the router: `make
// pgo` builds one with it, by an overlay.
func init() {
	path := os.Getenv(profileVariable)
	if path == "" {
		return
	}
	out, err := os.Create(path)
	if err != nil {
		panic(err)
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		panic(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		pprof.StopCPUProfile()
		_ = out.Close() // a truncated profile cannot be read
	}()
}
