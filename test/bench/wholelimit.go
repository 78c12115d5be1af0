package main

import (
	"bytes"
	"fmt"
	"os"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// serveLimit is a hand-written program that only reads the watch and counts its lines, until its
// process is stopped.
func serveLimit(task handTask) error {
	var lines atomic.Int64
	go func() {
		err := readLines(task.URL, &lines)
		fmt.Fprintln(os.Stderr, "bench: the watch has ended:", err)
		os.Exit(1)
	}()
	initial := int64(task.Objects + 1) // with the bookmark
	return serveProgress(task.Address, func() bool { return lines.Load() >= initial }, func() int64 { return max(0, lines.Load()-initial) })
}

func readLines(url string, lines *atomic.Int64) error {
	client, err := rest.HTTPClientFor(restConfig(url))
	if err != nil {
		return err
	}
	response, err := client.Get(url + "/api/v1/pods?watch=true&sendInitialEvents=true")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	buffer := make([]byte, 128<<10)
	for {
		n, err := response.Body.Read(buffer)
		lines.Add(int64(bytes.Count(buffer[:n], []byte{'\n'})))
		if err != nil {
			return err
		}
	}
}
