// Package limits contains the limits of a handler of WebAssembly modules.
package limits

import (
	"runtime"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// Limits are the limits of a handler's guests. Their defaults suffice for most guests. The error of
// a reached limit names it.
type Limits struct {
	Module config.Size `yaml:"module" default:"32Mi" min:"1Ki" max:"256Mi" doc:"Size of the module's file."`
	Memory config.Size `yaml:"memory" default:"64Mi" min:"64Ki" max:"4Gi" doc:"Memory of an instance, in steps of 64Ki; Go guests need 4Mi."`

	Instances int          `yaml:"instances" default:"0" min:"0" max:"1000" doc:"Most instances at the same time; 0: one per core, at most 4."`
	Calls     config.Count `yaml:"calls" default:"100k" min:"1" doc:"An instance is replaced after so many calls."`

	Fuel        config.Count  `yaml:"fuel" default:"75M" min:"10k" max:"10G" doc:"Instructions for a delta; 75M take about 15 ms."`
	InitFuel    config.Count  `yaml:"initFuel" default:"2G" min:"10k" max:"100G" doc:"Instructions for the start of an instance."`
	Timeout     time.Duration `yaml:"timeout" default:"1s" min:"1ms" doc:"Time for a delta: computing, and host functions that wait."`
	InitTimeout time.Duration `yaml:"initTimeout" default:"5s" min:"1ms" doc:"Time for the start of an instance: computing, and host functions that wait."`

	Batch  int         `yaml:"batch" default:"256" min:"1" max:"4096" doc:"Most deltas of a call."`
	Input  config.Size `yaml:"input" default:"1Mi" min:"4Ki" max:"64Mi" doc:"Most bytes of a call; a delta that is larger is a call of its own."`
	Output config.Size `yaml:"output" default:"1Mi" min:"1Ki" max:"64Mi" doc:"Most bytes of an answer."`
	Events int         `yaml:"events" default:"64" min:"1" max:"10000" doc:"Most events of a delta."`

	Message config.Size `yaml:"message" default:"4Ki" min:"16" max:"64Ki" doc:"Most bytes of an error's message, a type or a subject; a longer message is cut."`
	Log     int         `yaml:"log" default:"100" min:"0" doc:"Most lines that all instances log in a second; the rest is counted."`
	KV      config.Size `yaml:"kv" default:"1Mi" min:"1Ki" max:"1Gi" doc:"What the handler may remember, keys and 64 bytes for each value included."`
	LogLine config.Size `yaml:"logLine" default:"4Ki" min:"16" max:"64Ki" doc:"Most bytes of a line; the rest is cut off."`
}

// PageSize is the unit of a guest's memory, in bytes.
const PageSize = 64 << 10

// InstancesFor returns the maximum number of instances for a number of simultaneous calls.
func (l *Limits) InstancesFor(workers int) int {
	most := l.Instances
	if most == 0 {
		most = min(runtime.GOMAXPROCS(0), 4)
	}
	return max(min(most, workers), 1)
}
