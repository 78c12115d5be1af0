// Command guest is the guest of the tests of the kind stdio: a plain program for GOOS=wasip1. Its
// first argument is the name of its behaviour.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sort"
	"strings"
	"time"
)

type delta struct {
	Name   string
	Object struct {
		Metadata struct{ ResourceVersion string }
	}
}

func main() {
	mode := os.Args[1]
	if mode == "exits at once" {
		return
	}
	if mode == "fails at once" {
		fmt.Fprintln(os.Stderr, "no database")
		os.Exit(3)
	}
	if mode == "loops at once" {
		for {
		}
	}
	fmt.Println("started")
	if mode == "small reads" {
		smallReads()
		return
	}
	in := bufio.NewReaderSize(os.Stdin, 16)
	for n := 1; ; n++ {
		line, err := in.ReadString('\n')
		if err != nil {
			fmt.Fprintln(os.Stderr, "the end of stdin:", err)
			return
		}
		var d delta
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if mode == "objects" {
			objects(line)
		} else {
			behave(mode, d, n, in)
		}
	}
}

// answer prints an event with some data.
func answer(data any) {
	text, _ := json.Marshal(map[string]any{"events": []any{map[string]any{"data": data}}})
	fmt.Println(string(text))
}

// objects answers with the objects of a delta.
func objects(line string) {
	var d struct{ Object, OldObject json.RawMessage }
	_ = json.Unmarshal([]byte(line), &d)
	answer([]any{d.Object, d.OldObject})
}

func behave(mode string, d delta, n int, in *bufio.Reader) {
	bad := d.Name == "bad"
	switch {
	case mode == "names":
		answer([]any{d.Name, d.Object.Metadata.ResourceVersion, n})
	case mode == "args":
		env := os.Environ()
		sort.Strings(env)
		answer([]any{os.Args, env})
	case mode == "verdict":
		fmt.Println(os.Args[2])
	case mode == "stray":
		fmt.Println("working on it")
		fmt.Println(`{"level":"info","events":[]}`)
		fmt.Println(`[1, 2`)
		fmt.Println()
		fmt.Print("  ")
		answer(n)
		fmt.Print("no newline")
	case mode == "stderr":
		fmt.Fprintln(os.Stderr, "on stderr")
		answer(n)
	case mode == "twice" && bad:
		answer(1)
		answer(2)
	case mode == "never" && bad:
	case mode == "partial" && bad:
		fmt.Print(`{"events":[]}`)
	case mode == "ahead" && bad:
		_, err := in.ReadString('\n')
		answer(fmt.Sprint("ahead ", err))
	case mode == "exit":
		answer(n)
		if bad {
			os.Exit(0)
		}
	case mode == "one":
		fmt.Printf(`{"events":[{"data":%d}]}`, n)
		os.Exit(0)
	case mode == "exit early" && bad:
		os.Exit(0)
	case mode == "exit 3" && bad:
		answer(n)
		os.Exit(3)
	case mode == "panic" && bad:
		panic("on purpose")
	case mode == "loop" && bad:
		for {
		}
	case mode == "recurse" && bad:
		answer(recurse(n))
	case mode == "long" && bad:
		fmt.Println(`{"events":[{"data":"` + strings.Repeat("x", 5000) + `"}]}`)
	case mode == "long" && d.Name == "stray":
		fmt.Println(strings.Repeat("y", 5000))
		answer(n)
	case mode == "endless" && bad:
		for {
			fmt.Print(strings.Repeat("z", 4000))
		}
	case mode == "memory" && bad:
		var all [][]byte
		for {
			all = append(all, make([]byte, 1<<20))
		}
	case mode == "pieces":
		pieces(fmt.Sprintf("{\"events\":[{\"data\":%d}]}\n", n))
	case mode == "clock":
		answer([]any{time.Now().Unix(), rand.Uint64(), rand.Uint64()})
	case mode == "sleep":
		before := time.Now()
		time.Sleep(time.Hour)
		answer(time.Since(before) >= time.Hour)
	case mode == "files":
		answer(files())
	case mode == "sockets":
		_, err := net.Dial("tcp", "127.0.0.1:1")
		answer(err != nil)
	default:
		answer(n)
	}
}

func recurse(n int) int {
	if n < 0 {
		return 0
	}
	return recurse(n+1) + n
}

// files tries what a program does with files.
func files() (all []string) {
	for _, path := range os.Args[2:] {
		text, err := os.ReadFile(path)
		if err == nil {
			all = append(all, fmt.Sprintf("%s=%s", path, text))
			continue
		}
		entries, listErr := os.ReadDir(path)
		if listErr != nil {
			all = append(all, err.Error())
			continue
		}
		for _, e := range entries {
			info, err := e.Info()
			all = append(all, fmt.Sprint(path, "/", e.Name(), " ", e.IsDir(), " ", err == nil && info.Size() == 0))
		}
	}
	if f, err := os.Open(os.Args[2]); err == nil {
		end, _ := f.Seek(-2, 2)
		buf := make([]byte, 10)
		n, _ := f.Read(buf)
		m, _ := f.ReadAt(buf[n:n+1], 0)
		f.Close()
		_, closed := f.Read(buf)
		all = append(all, fmt.Sprint(end, string(buf[:n+m]), closed != nil))
	}
	_, err := os.Create("/new")
	all = append(all, fmt.Sprint(err))
	all = append(all, fmt.Sprint(os.WriteFile(os.Args[2], []byte("x"), 0o600)))
	all = append(all, fmt.Sprint(os.Mkdir("/folder", 0o700)), fmt.Sprint(os.Remove(os.Args[2])))
	return all
}
