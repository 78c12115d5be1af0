package natstest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/deltarouter/deltarouter/test/child"
)

// logTail is the number of bytes that Log returns.
const logTail = 8 << 10

// Server is a process of nats-server.
type Server struct {
	child.Process

	Name string

	bin, dir string
	ports    []int // of clients, of the other servers, of monitoring
}

// Addr is the address for clients.
func (s *Server) Addr() string { return address(s.ports[0]) }

// Monitor is the address of the monitoring endpoints, such as /jsz.
func (s *Server) Monitor() string { return address(s.ports[2]) }

// Store is the folder of JetStream's files.
func (s *Server) Store() string { return filepath.Join(s.dir, "store") }

func (s *Server) file() string { return filepath.Join(s.dir, "server.conf") }

func (s *Server) logFile() string { return filepath.Join(s.dir, "server.log") }

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (s *Server) start() error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.bin, "-c", s.file())
	cmd.Stdout, cmd.Stderr = log, log
	if err := s.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	return nil
}

// Shutdown asks the process to end with SIGTERM, and waits for its end.
func (s *Server) Shutdown() error { return s.Terminate(patience) }

// Restart kills the process if it runs, and starts it with the same ports and files. The caller
// waits with WaitReady.
func (s *Server) Restart() error {
	s.Kill()
	return s.start()
}

// Log returns the end of the log.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-logTail):])
}

// ready returns nil if all streams of the server are up to date and, in a cluster, it has a leader
// that knows the others. A leader without a server finds no place for the third replica of a new
// stream.
func (s *Server) ready(client *http.Client, others []string) error {
	if _, err := get(client, "http://"+s.Monitor()+"/healthz"); err != nil || len(others) == 0 {
		return err
	}
	body, err := get(client, "http://"+s.Monitor()+"/jsz")
	if err != nil {
		return err
	}
	var status struct {
		Meta struct {
			Leader   string    `json:"leader"`
			Replicas []replica `json:"replicas"` // of the leader only
		} `json:"meta_cluster"`
	}
	if err := json.Unmarshal(body, &status); err != nil {
		return err
	}
	if status.Meta.Leader == "" {
		return fmt.Errorf("%s knows no leader", s.Name)
	}
	if status.Meta.Leader == s.Name {
		return missing(others, status.Meta.Replicas)
	}
	return nil
}

// replica is another server in the status of the leader.
type replica struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	Offline bool   `json:"offline"`
}

// missing returns an error if one of the servers is not among the replicas that are up to date.
func missing(servers []string, all []replica) error {
	for _, name := range servers {
		if !slices.Contains(all, replica{Name: name, Current: true}) {
			return fmt.Errorf("the leader does not know that %s is up to date: %v", name, all)
		}
	}
	return nil
}

func get(client *http.Client, url string) ([]byte, error) {
	response, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", url, response.Status, body)
	}
	return body, err
}
