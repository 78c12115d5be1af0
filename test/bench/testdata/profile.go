package main

import (
	"errors"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
)

// profileVariable has the file for the CPU profile of the process.
const profileVariable = "ROUTER_PROFILE"

// init profiles the process from its start until SIGUSR1. The file gets its name when it is
// complete. This source is no part of the router: `bench -profile` builds one with it, by an
// overlay.
func init() {
	path := os.Getenv(profileVariable)
	if path == "" {
		return
	}
	out, err := os.Create(path + ".part")
	if err != nil {
		panic(err)
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		panic(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGUSR1)
	go func() {
		<-stop
		pprof.StopCPUProfile()
		if err := errors.Join(out.Close(), os.Rename(out.Name(), path)); err != nil {
			panic(err)
		}
	}()
}
