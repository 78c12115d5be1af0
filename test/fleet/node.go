package fleet

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/test/child"
	"github.com/deltarouter/deltarouter/test/routertest"
)

// Node is a process of the router, a member or a worker. It can be started again after its end,
// with the same state folder.
type Node struct {
	child.Process

	Name string

	dir, binary string
	args, env   []string
	lives       int
}

// probeTimeout bounds a request to a process, which may be paused.
const probeTimeout = 2 * time.Second

// Launch starts the process, which must not run.
func (n *Node) Launch() error {
	n.lives++
	log, err := os.Create(n.logFile(n.lives))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(n.binary, n.args...)
	cmd.Env = append(os.Environ(), n.env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := n.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	return nil
}

// Forget removes the state folder of a process that has ended.
func (n *Node) Forget() error { return os.RemoveAll(filepath.Join(n.dir, "state")) }

func (n *Node) logFile(life int) string { return filepath.Join(n.dir, fmt.Sprintf("log-%d", life)) }

// Log returns the log since the last start.
func (n *Node) Log() string {
	text, err := os.ReadFile(n.logFile(n.lives))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Count returns the number of lines with a text in the logs of all lives.
func (n *Node) Count(text string) (lines int) {
	for life := range n.lives {
		log, err := os.ReadFile(n.logFile(life + 1))
		if err == nil {
			lines += strings.Count(string(log), text)
		}
	}
	return lines
}

// Tail returns the ends of the logs of the last two lives.
func (n *Node) Tail() string {
	const most = 6 << 10
	var b strings.Builder
	for life := max(1, n.lives-1); life <= n.lives; life++ {
		text, err := os.ReadFile(n.logFile(life))
		fmt.Fprintf(&b, "%s, life %d (error: %v):\n%s\n", n.Name, life, err, text[max(0, len(text)-most):])
	}
	return b.String()
}

var listening = regexp.MustCompile(`"msg":"listening","for":"probes","address":"([^"]+)"`)

// Get requests a path from the listener of the probes. The code is 0 if the process does not
// answer.
func (n *Node) Get(path string) (code int, body string) {
	found := listening.FindAllStringSubmatch(n.Log(), -1)
	if len(found) == 0 {
		return 0, "does not listen"
	}
	client := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + found[len(found)-1][1] + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// Ready returns nil if the process is ready.
func (n *Node) Ready() error {
	if code, body := n.Get("/readyz"); code != http.StatusOK {
		return fmt.Errorf("%s: %s", n.Name, body)
	}
	return nil
}

// Metric returns the sum of the series of a metric, see [routertest.Sum]; 0 if the process does not
// answer.
func (n *Node) Metric(series string) float64 {
	_, body := n.Get("/metrics")
	sum, err := routertest.Sum(body, series)
	if err != nil {
		return 0
	}
	return sum
}
