package abi

import (
	"runtime"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// Limits are the limits of a handler's guests. Their defaults suffice for most guests. The error of
// a reached limit names it.
type Limits struct {
	Module config.Size `yaml:"module" default:"32Mi" min:"1Ki" max:"256Mi" doc:"Maximum size of the module's file."`
	Memory config.Size `yaml:"memory" default:"64Mi" min:"64Ki" max:"4Gi" doc:"Maximum memory of an instance, in steps of 64Ki. Go guests need 4Mi."`

	Instances int          `yaml:"instances" default:"0" min:"0" max:"1000" doc:"Maximum number of simultaneous instances. 0: one per core, at most 4."`
	Calls     config.Count `yaml:"calls" default:"100k" min:"1" doc:"Number of calls after which an instance is replaced."`

	Fuel        config.Count  `yaml:"fuel" default:"75M" min:"10k" max:"10G" doc:"Maximum number of instructions for a delta. 75M take about 15 ms."`
	InitFuel    config.Count  `yaml:"initFuel" default:"2G" min:"10k" max:"100G" doc:"Maximum number of instructions for the start of an instance."`
	Timeout     time.Duration `yaml:"timeout" default:"1s" min:"1ms" doc:"Timeout of a delta, including host functions that wait."`
	InitTimeout time.Duration `yaml:"initTimeout" default:"5s" min:"1ms" doc:"Timeout of the start of an instance, including host functions that wait."`

	Batch  int         `yaml:"batch" default:"256" min:"1" max:"4096" doc:"Maximum number of deltas in a call."`
	Input  config.Size `yaml:"input" default:"1Mi" min:"4Ki" max:"64Mi" doc:"Maximum size of a call. A larger delta gets a call of its own."`
	Output config.Size `yaml:"output" default:"1Mi" min:"1Ki" max:"64Mi" doc:"Maximum size of an answer."`
	Events int         `yaml:"events" default:"64" min:"1" max:"10000" doc:"Maximum number of events of a delta."`

	Message config.Size `yaml:"message" default:"4Ki" min:"16" max:"64Ki" doc:"Maximum size of an error message, a type or a subject. A longer message is truncated."`
	Log     int         `yaml:"log" default:"100" min:"0" doc:"Maximum number of lines that all instances log per second. Further lines are counted."`
	KV      config.Size `yaml:"kv" default:"1Mi" min:"1Ki" max:"1Gi" doc:"Maximum size of the handler's store, including keys and 64 bytes per value."`
	LogLine config.Size `yaml:"logLine" default:"4Ki" min:"16" max:"64Ki" doc:"Maximum size of a line. A longer line is truncated."`
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
