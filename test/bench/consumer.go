package main

import (
	"encoding/json"
	"net/http"
	"os"
	"runtime"
	"syscall"
	"time"
)

// consumer measures one contender, at the same points for all of them.
type consumer struct {
	url     string
	objects int
	updates int // 0: only the memory is measured, see memory.go

	heap   uint64
	atSync time.Duration
	result result
}

// begin must be called before the watch starts.
func (c *consumer) begin() {
	c.heap = heap()
	c.atSync = cpu()
}

// synced must be called when the cache has every object; it starts the updates.
func (c *consumer) synced() error {
	c.result.CPUPerObject = micros(cpu()-c.atSync) / float64(c.objects)
	c.result.HeapPerObject = c.heapPerObject()
	if c.updates == 0 {
		return c.rest()
	}
	c.atSync = cpu()
	runtime.GC()
	c.result.GCPerObject = 1000 * micros(cpu()-c.atSync) / float64(c.objects)
	c.atSync = cpu()
	response, err := http.Post(c.url+"/go", "", nil)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func (c *consumer) heapPerObject() float64 {
	return (float64(heap()) - float64(c.heap)) / float64(c.objects)
}

// done must be called when the cache has every update; it prints the result.
func (c *consumer) done() error {
	c.result.CPUPerUpdate = micros(cpu()-c.atSync) / float64(c.updates)
	c.result.PeakRSS = peakRSS()
	return c.print()
}

func (c *consumer) print() error { return json.NewEncoder(os.Stdout).Encode(c.result) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// heap returns the bytes in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// cpu returns the process's user and system time.
func cpu() time.Duration {
	usage := rusage()
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// peakRSS returns the largest resident set so far, in MB; Linux counts in KB.
func peakRSS() float64 { return float64(rusage().Maxrss) / 1024 }

func rusage() (usage syscall.Rusage) {
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage
}
