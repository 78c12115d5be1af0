// Package prometheustest runs the programs of Prometheus for tests: promtool, and a server on
// loopback that scrapes one target. Debian's package prometheus has both.
package prometheustest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// FolderVariable names the variable of the environment with the folder of the programs. If it is
// set, a missing program is a failure; otherwise it is searched in PATH, and its test is skipped if
// it is not there.
const FolderVariable = "PROMETHEUS_BIN"

// patience bounds the start of a server.
const patience = 2 * time.Minute

// Program returns the path of promtool or prometheus.
func Program(t *testing.T, name string) string {
	t.Helper()
	if folder := os.Getenv(FolderVariable); folder != "" {
		path, err := exec.LookPath(filepath.Join(folder, name))
		must.Succeed(t, err)
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: %s is not in PATH (Debian's package prometheus has it): %v", name, err)
	}
	return path
}

// Server is a running Prometheus.
type Server struct{ url string }

// config scrapes one target every second.
const config = `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs: [{job_name: deltarouter, static_configs: [{targets: [%q]}]}]
`

var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// ready is in the line after which queries are answered: before, the answer is 503.
const ready = `msg="Server is ready to receive web requests."`

// Start runs a server that scrapes /metrics of an address, until the end of the test.
func Start(t *testing.T, target string, flags ...string) *Server {
	t.Helper()
	program, dir := Program(t, "prometheus"), t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	must.Succeed(t, os.WriteFile(file, fmt.Appendf(nil, config, target), 0o600))
	cmd := exec.Command(program, append([]string{
		"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0",
	}, flags...)...)
	stderr, err := cmd.StderrPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	address, ended := make(chan string, 1), make(chan struct{})
	var log strings.Builder
	go func() {
		defer close(ended)
		at := ""
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(&log, lines.Text())
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				at = m[1]
			}
			if strings.Contains(lines.Text(), ready) {
				address <- at
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the log of Prometheus:\n%s", log.String())
		}
	})
	select {
	case at := <-address:
		return &Server{"http://" + at}
	case <-ended:
		t.Fatal("Prometheus ended before it was ready")
	case <-time.After(patience):
		t.Fatal("Prometheus is not ready")
	}
	return nil
}

// Query evaluates an expression now, and returns the number of its series.
func (s *Server) Query(t *testing.T, expr string) (series int, err error) {
	t.Helper()
	response, err := http.Get(s.url + "/api/v1/query?" + url.Values{"query": {expr}}.Encode())
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("%s: %s: %w", response.Status, body, err)
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("%s: %s", response.Status, answer.Error)
	}
	return len(answer.Data.Result), nil
}
