// A server of profiles, of the parts that others are made of: it takes one push as Pyroscope's own API declares it
// (connect, over the generated types), opens the profile with google/pprof, and prints what it holds. With the names of
// files it opens those.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
)

// What a profile holds.
type summary struct {
	Labels     map[string]string `json:"labels,omitempty"`
	Totals     map[string]int64  `json:"totals"`
	Samples    int               `json:"samples"`
	Functions  int               `json:"functions"`
	Names      []string          `json:"names"`
	PeriodType string            `json:"period_type"`
	TimeNanos  int64             `json:"time_nanos"`
}

func summarize(data []byte, labels map[string]string) (*summary, error) {
	// Checks ids, references and numbers of values, too.
	parsed, err := profile.Parse(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	// What cannot be written again was not understood.
	var again bytes.Buffer
	if err := parsed.Write(&again); err != nil {
		return nil, err
	}
	of := &summary{
		Labels: labels, Totals: map[string]int64{}, Samples: len(parsed.Sample), Functions: len(parsed.Function),
		PeriodType: parsed.PeriodType.Type + "/" + parsed.PeriodType.Unit, TimeNanos: parsed.TimeNanos,
	}
	for _, function := range parsed.Function {
		of.Names = append(of.Names, function.Name)
	}
	for place, kind := range parsed.SampleType {
		for _, sample := range parsed.Sample {
			of.Totals[kind.Type] += sample.Value[place]
		}
	}
	return of, nil
}

type pusher struct {
	pushv1connect.UnimplementedPusherServiceHandler
	arrived chan *summary
}

func (p *pusher) Push(_ context.Context, request *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	for _, series := range request.Msg.Series {
		labels := map[string]string{}
		for _, label := range series.Labels {
			labels[label.Name] = label.Value
		}
		for _, sample := range series.Samples {
			of, err := summarize(sample.RawProfile, labels)
			if err != nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, err)
			}
			p.arrived <- of
		}
	}
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

func run() error {
	print := func(of *summary) error { return json.NewEncoder(os.Stdout).Encode(of) }
	for _, path := range os.Args[1:] {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		of, err := summarize(data, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := print(of); err != nil {
			return err
		}
	}
	if len(os.Args) > 1 {
		return nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	service := &pusher{arrived: make(chan *summary, 16)}
	mux := http.NewServeMux()
	mux.Handle(pushv1connect.NewPusherServiceHandler(service))
	fmt.Println(listener.Addr())
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	if err := print(<-service.arrived); err != nil {
		return err
	}
	// Waits for the answer: who ends before it was written has cut the connection.
	return server.Shutdown(context.Background())
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
