package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/test/bench/bare"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

const (
	jobRate = 200 // changes per second
	// bareLoop is the program that a platform engineer writes first: it lists, watches and posts.
	bareLoop = "list, watch, post"
	jobSink  = "webhook: {url: %q, body: event.data}"
	jobEmit  = `emit: "[event({'name': object.metadata.name, 'phase': object.status.phase})]"`
)

// jobWork has the changes that the pods get while a job is measured.
type jobWork struct {
	name string
	ops  string // of the router's route
	ask  ask
}

func jobWorks() []jobWork {
	const all = "[added, updated, deleted]"
	return []jobWork{
		{fmt.Sprintf("updates, %d/s", jobRate), all, ask{rate: jobRate}},
		{"updates, as fast as they are posted", all, ask{alone: true}},
		{fmt.Sprintf("new pods, %d/s", jobRate), all, ask{rate: jobRate, created: true}},
		{fmt.Sprintf("new pods, %d/s, no deletes", jobRate), "added", ask{rate: jobRate, created: true}},
	}
}

// workload returns the route of a job.
func (w jobWork) workload() workload {
	return workload{"job", fmt.Sprintf("routes: [{name: r, from: pods, to: out, overflow: block, ops: %s, %s}]\n", w.ops, jobEmit), `deltarouter_route_deltas_total{result="delivered"`}
}

// compareJobs measures the CPU of whole processes for the most common job: each change of a pod
// becomes a small JSON text, which is posted to a receiver, a process of its own.
func compareJobs(out *report.Report, objects, updates, rounds int) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	url, stop, err := startReceiver()
	if err != nil {
		return err
	}
	defer stop()
	b := &routers{dir: dir, objects: objects, secure: true, sink: fmt.Sprintf(jobSink, url)}
	if err := b.build(); err != nil {
		return err
	}
	t := report.Table{
		Part: "job", Title: "A webhook job",
		Text: fmt.Sprintf("CPU of the whole process for a change that becomes one POST, beside a program of forty lines that lists, watches and posts with encoding/json "+
			"and an http.Client, one at a time. The server speaks TLS and HTTP/2, as an API server does. The router has a state folder, where it says so; then a new pod whose delete the route wants is on disk before it is posted. "+
			"%d pods of 5.6 KB, %d changes in a turn, %d rounds: medians.", objects, updates, rounds),
		Labels: []string{"work", "program"},
		Columns: []report.Column{
			{Name: "CPU µs/change", Format: "%.0f"},
			{Name: "CPU", Format: "%.2f", Ratio: true},
		},
	}
	for _, work := range jobWorks() {
		rows, err := b.compareJob(work, url, updates, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", work.name, err)
		}
		t.Rows = append(t.Rows, rows...)
	}
	return out.Add(t)
}

// compareJob measures the programs in turns, with one work.
func (b *routers) compareJob(work jobWork, receiver string, updates, rounds int) (rows []report.Row, err error) {
	all := map[string]*wholeProcess{}
	names := []string{bareLoop, "deltarouter with a state folder", "deltarouter"}
	route := work.workload()
	for i, name := range names {
		var p *process
		done, keeps := route.done, nothing
		if i == 1 {
			keeps = everything
		}
		if i == 0 {
			p, err = b.startBare(receiver)
			done = handDone
		} else {
			p, err = b.open(route, keeps)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer p.close()
		all[name] = &wholeProcess{p, name, done, work.ask.alone}
	}
	used := map[string][]float64{}
	for round := range rounds + 1 {
		for _, name := range names {
			a := work.ask
			if a.n = updates; round == 0 { // warms up
				a.n = updates / 4
			}
			each, err := all[name].answer(a)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if round > 0 {
				fmt.Fprintf(os.Stderr, "round %d: %s: %s: %.0f\n", round, work.name, name, each)
				used[name] = append(used[name], each)
			}
		}
	}
	for i, name := range names {
		label := work.name
		if i > 0 {
			label = ""
		}
		rows = append(rows, report.Row{Labels: []string{label, name}, Figures: []float64{middle(used[name]), middle(quotients(used[name], used[bareLoop]))}})
	}
	return rows, nil
}

// startBare starts the hand-written program on a server of its own.
func (b *routers) startBare(receiver string) (*process, error) {
	f, err := startFlood(b.objects, b.secure)
	if err != nil {
		return nil, err
	}
	p, err := b.startHand(handTask{Post: receiver}, "post", f.url)
	if err != nil {
		f.close()
		return nil, err
	}
	p.server = f
	if err := p.wait(func() bool { return p.get("/readyz") != "" }); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// servePost is the hand-written program: it reads the watch, and posts each change that follows the
// initial events.
func servePost(task handTask) error {
	var posted atomic.Int64
	synced := make(chan struct{})
	go func() {
		err := postLines(task, synced, &posted)
		fmt.Fprintln(os.Stderr, "bench: the watch has ended:", err)
		os.Exit(1)
	}()
	isSynced := func() bool {
		select {
		case <-synced:
			return true
		default:
			return false
		}
	}
	return serveProgress(task.Address, isSynced, posted.Load)
}

func postLines(task handTask, synced chan struct{}, posted *atomic.Int64) error {
	client, err := rest.HTTPClientFor(restConfig(task.URL))
	if err != nil {
		return err
	}
	loop := bare.Loop{Client: client, URL: task.URL + "/api/v1/pods", Receiver: task.Post, Body: twoFields}
	return loop.Run(func() { close(synced) }, func() { posted.Add(1) })
}

// twoFields returns two fields of the pod of an event.
func twoFields(line []byte) (any, error) {
	var change struct {
		Object struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Status struct {
				Phase string `json:"phase"`
			} `json:"status"`
		} `json:"object"`
	}
	err := json.Unmarshal(line, &change)
	return map[string]string{"name": change.Object.Metadata.Name, "phase": change.Object.Status.Phase}, err
}

// recordJobs writes a CPU profile of the router for each work of a webhook job with a state folder:
// into the file with the given name and the number of the work behind it.
func recordJobs(file string, objects, updates int) error {
	url, stop, err := startReceiver()
	if err != nil {
		return err
	}
	defer stop()
	b, remove, err := profiledRouters(objects)
	defer remove()
	if err != nil {
		return err
	}
	b.secure, b.sink = true, fmt.Sprintf(jobSink, url)
	for i, work := range jobWorks() {
		work.ask.n = updates
		profile, err := b.recordJob(work)
		if err == nil {
			err = copyFile(profile, fmt.Sprint(file, i+1))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", work.name, err)
		}
	}
	return nil
}

// recordJob returns the file with the profile of one work.
func (b *routers) recordJob(work jobWork) (profile string, err error) {
	p, err := b.open(work.workload(), everything)
	if err != nil {
		return "", err
	}
	defer p.close()
	each, err := (&wholeProcess{process: p, done: work.workload().done}).answer(work.ask)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "%s: %.0f µs\n", work.name, each)
	return filepath.Join(p.dir, profileFile), p.profiled()
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
