package child_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/child"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestProcess(t *testing.T) {
	var p child.Process
	if p.Kill(); p.Running() || p.Crashed() {
		t.Error("it runs before its start")
	}
	must.Succeed(t, p.Terminate(time.Minute))
	must.Succeed(t, p.Start(exec.Command("sleep", "3600")))
	p.Pause()
	if !p.Running() {
		t.Error("it does not run")
	}
	p.Continue()
	must.Succeed(t, p.Terminate(time.Minute))
	if p.Running() || p.Crashed() || p.Code() != -1 {
		t.Errorf("it was asked to end: running %t, crashed %t, code %d", p.Running(), p.Crashed(), p.Code())
	}
	must.Succeed(t, p.Start(exec.Command("sh", "-c", "exit 3")))
	for deadline := time.Now().Add(time.Minute); p.Running() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if !p.Crashed() || p.Code() != 3 {
		t.Errorf("it ended by itself: crashed %t, code %d", p.Crashed(), p.Code())
	}
	must.Fail(t, p.Start(exec.Command("/nowhere")), "/nowhere")
}

// TestStubborn shows that a process that ignores SIGTERM is killed.
func TestStubborn(t *testing.T) {
	var p child.Process
	cmd := exec.Command("sh", "-c", `trap "" TERM; echo; while :; do sleep 1; done`)
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, p.Start(cmd))
	_, err = out.Read(make([]byte, 1)) // the trap is set
	must.Succeed(t, err)
	must.Fail(t, p.Terminate(time.Millisecond), "did not end")
	if p.Running() {
		t.Error("it runs")
	}
}
