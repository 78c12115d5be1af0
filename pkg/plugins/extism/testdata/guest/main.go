// Command guest performs the action in the name of an object. The tests of the host build it.
package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {}

// greeting is read before the guest is attached.
var greeting = get(configGet(put("greeting")))

var calls int

//go:wasmexport wrong
func wrong(int32) {}

//go:wasmexport nothing
func nothing() {}

//go:wasmexport handle
func handle() int32 {
	calls++
	delta := input()
	_, name, _ := strings.Cut(delta, `"name":"`)
	name, _, _ = strings.Cut(name, `"`)
	if f := hostile[name]; f != nil {
		f()
		return 0
	}
	return answer(name, delta)
}

func answer(name, delta string) int32 {
	switch name {
	case "echo":
		output(`[{"data":` + delta + `}]`)
	case "objects":
		_, objects, _ := strings.Cut(delta, `,"object":`)
		object, old, both := strings.Cut(strings.TrimSuffix(objects, "}"), `,"oldObject":`)
		if !both {
			old = "null"
		}
		output(`[{"data":[` + object + "," + old + `]}]`)
	case "bytes":
		text := make([]byte, inputLength())
		for i := range text {
			text[i] = byte(inputLoad8(uint64(i)))
		}
		output(fmt.Sprintf(`[{"data":%t}]`, string(text) == delta && get(inputOffset()) == delta && inputLoad64(inputLength()) == 0))
	case "verdict":
		output(get(configGet(put("answer"))))
	case "config":
		output(fmt.Sprintf(`[{"data":[%q,%s,%s,%d]}]`, greeting, get(configGet(put("number"))), get(configGet(put("list"))), configGet(put("none"))))
	case "fail":
		errorSet(put("as you wish\x1b[31m"))
		return 1
	case "freed":
		at := put("a freed message")
		errorSet(at)
		free(at)
	case "forgiven":
		errorSet(put("no"))
		if errorGet() != 0 {
			errorSet(0)
		}
	case "code":
		return 7
	case "calls":
		output(fmt.Sprintf(`[{"data":%d}]`, calls))
	case "panic":
		panic("on purpose")
	case "exit":
		os.Exit(3)
	case "time":
		output(fmt.Sprintf(`[{"data":[%q]}]`, time.Now().UTC().Format(time.RFC3339)))
	case "blocks":
		blocks()
	default:
		return services(name)
	}
	return 0
}

// blocks checks what Extism says about blocks.
func blocks() {
	one, two := put("one"), put("second block")
	text := []any{
		get(one), get(two), length(one), length(one + 1), lengthUnsafe(two), length(0), length(math.MaxUint64), alloc(0), load8(two + 3),
		outputLength(), outputOffset(), errorGet(), memoryBytes() > 0,
	}
	free(one)
	free(one)
	free(12345)
	text = append(text, length(one), get(two))
	inputSet(two, 6)
	text = append(text, inputLength(), input())
	inputSet(two, math.MaxUint64) // ignored
	text = append(text, inputLength())
	output(fmt.Sprintf(`[{"data":%q}]`, strings.Trim(fmt.Sprintln(text...), "\n")))
}

func services(name string) int32 {
	switch name {
	case "vars":
		key := put("a")
		before := varGet(key)
		varSet(key, put("1 \xff"))
		now := get(varGet(key))
		varSet(key, 0)
		varSet(key, 0)
		output(fmt.Sprintf(`[{"data":[%d,%d,%d]}]`, before, len(now), varGet(key)))
	case "count":
		n, _ := strconv.Atoi(get(varGet(put("n"))))
		varSet(put("n"), put(strconv.Itoa(n+1)))
		output(fmt.Sprintf(`[{"data":%d}]`, n+1))
	case "countfail":
		services("count")
		errorSet(put("counted in vain"))
	case "largevar":
		varSet(put("a"), alloc(1<<20))
	case "http":
		body := httpRequest(put(get(configGet(put("request")))), put("hello \xff"))
		output(fmt.Sprintf(`[{"data":[%d,%q,%q]}]`, httpStatusCode(), get(body), get(httpHeaders())))
	case "httptwice":
		request := put(get(configGet(put("request"))))
		httpRequest(request, 0)
		output(fmt.Sprintf(`[{"data":%d}]`, httpRequest(request, 0)))
	case "nohttp":
		output(fmt.Sprintf(`[{"data":[%d,%d]}]`, httpStatusCode(), httpHeaders()))
	case "lookup":
		output(`[{"data":` + get(lookup(put(`{"get":"nodes","name":"n1"}`))) + `}]`)
	case "log":
		for _, log := range []func(uint64){logTrace, logDebug, logInfo, logWarn, logError} {
			log(put("a line\nb"))
		}
		output(fmt.Sprintf(`[{"data":%d}]`, logLevel()))
	}
	return 0
}

// hostile are the actions of a hostile guest.
var hostile = map[string]func(){
	"load0":      func() { load8(0) },
	"loadfar":    func() { load64(math.MaxUint64 - 3) },
	"loadhuge":   func() { load64(1 << 40) },
	"store0":     func() { store8(0, 1) },
	"storefar":   func() { store64(math.MaxUint64-7, 1) },
	"storetop":   func() { store64(put("x")+16, 1) },
	"allocfar":   func() { alloc(math.MaxUint64) },
	"allocround": func() { alloc(math.MaxUint64 - 40) },
	"allocall": func() {
		for {
			alloc(1 << 10)
		}
	},
	"alloctiny": func() {
		for {
			alloc(1)
		}
	},
	"allocfree": func() {
		for {
			free(alloc(5000))
		}
	},
	"forged": func() { // the guest overwrites headers of blocks
		for i := uint64(0); ; i++ {
			at := alloc(64)
			store64(at-16, i*0x9e3779b97f4a7c15)
			free(at)
			store64(at-16, 1<<62|64)
			free(at)
			alloc(length(at) + 1)
		}
	},
	"resets": func() {
		for {
			alloc(1 << 19)
			reset()
		}
	},
	"output0":    func() { outputSet(0, 10) },
	"outputfar":  func() { outputSet(math.MaxUint64-5, 10) },
	"outputsize": func() { outputSet(64, math.MaxUint64) },
	"outputhuge": func() { outputSet(put("x"), 1<<19) },
	"errorfar":   func() { errorSet(math.MaxUint64) },
	"errorhuge":  func() { errorSet(alloc(1 << 20)) },
	"garbage":    func() { output("\x00\xff{") },
	"spin": func() {
		for { //nolint:staticcheck // on purpose
		}
	},
	"logs": func() {
		for at := put(strings.Repeat("x", 1<<12)); ; {
			logError(at)
		}
	},
	"configs": func() {
		for at := alloc(1 << 19); ; {
			configGet(at)
		}
	},
	"requests": func() {
		for at := alloc(1 << 16); ; {
			httpRequest(at, at)
		}
	},
	"hugerequest": func() { httpRequest(alloc(1<<20), 0) },
	"lookups": func() {
		for at := put("[]"); ; {
			lookup(at)
		}
	},
	"varkeys": func() { varGet(alloc(4096)) },
}
