package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Report is what the demo found, counted at the receivers.
type Report struct {
	Events            int              `json:"events"`
	Deliveries        int              `json:"deliveries"`
	Delivered         int              `json:"delivered"`
	Lost              int              `json:"lost"`
	Duplicates        int              `json:"duplicates"`
	SignatureFailures int              `json:"signature_failures"`
	ByProtocol        ByProtocol       `json:"by_protocol"`
	Receivers         []ReceiverReport `json:"receivers"`
	Seconds           float64          `json:"seconds"`
}

// ByProtocol counts requests.
type ByProtocol struct {
	H1 int `json:"h1"`
	H2 int `json:"h2"`
	H3 int `json:"h3"`
}

// ReceiverReport is one receiver's part.
type ReceiverReport struct {
	Name              string     `json:"name"`
	About             string     `json:"about"`
	Delivered         int        `json:"delivered"`
	Lost              int        `json:"lost"`
	Attempts          int        `json:"attempts"`
	ResentAttempts    int        `json:"resent_attempts"`
	Duplicates        int        `json:"duplicates"`
	SignatureFailures int        `json:"signature_failures"`
	ByProtocol        ByProtocol `json:"by_protocol"`
	TCPConnections    int        `json:"tcp_connections"`
	QUICConnections   int        `json:"quic_connections"`
	P50Millis         float64    `json:"p50_ms"`
	P99Millis         float64    `json:"p99_ms"`
}

func (d *Demo) report(took time.Duration) Report {
	r := Report{Events: d.config.Events, Deliveries: d.config.Events * len(d.receivers), Seconds: took.Seconds()}
	for _, receiver := range d.receivers {
		c := receiver.Tally().Counts()
		latencies := receiver.latencies(d.published)
		one := ReceiverReport{
			Name: receiver.name, About: receiver.about, Delivered: int(c.Accepted), Lost: d.config.Events - int(c.Accepted),
			Attempts: int(c.Requests), ResentAttempts: int(c.ResentAttempts), Duplicates: int(c.Duplicates),
			SignatureFailures: int(c.SignatureFailures),
			ByProtocol:        ByProtocol{H1: int(c.H1), H2: int(c.H2), H3: int(c.H3)},
			TCPConnections:    int(c.TCPConnections), QUICConnections: int(c.QUICConnections),
			P50Millis: millis(percentile(latencies, 0.5)), P99Millis: millis(percentile(latencies, 0.99)),
		}
		r.Receivers = append(r.Receivers, one)
		r.Delivered += one.Delivered
		r.Lost += one.Lost
		r.Duplicates += one.Duplicates
		r.SignatureFailures += one.SignatureFailures
		r.ByProtocol.H1 += one.ByProtocol.H1
		r.ByProtocol.H2 += one.ByProtocol.H2
		r.ByProtocol.H3 += one.ByProtocol.H3
	}
	return r
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Print writes the report as a table.
func (r Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "RECEIVER\tDELIVERED\tH1\tH2\tH3\tATTEMPTS\tP50\tP99\tDUPLICATES\tBAD SIGNATURES\tABOUT")
	for _, one := range r.Receivers {
		fmt.Fprintf(t, "%s\t%d/%d\t%d\t%d\t%d\t%d\t%.0f ms\t%.0f ms\t%d\t%d\t%s\n", one.Name, one.Delivered, r.Events,
			one.ByProtocol.H1, one.ByProtocol.H2, one.ByProtocol.H3, one.Attempts, one.P50Millis, one.P99Millis,
			one.Duplicates, one.SignatureFailures, one.About)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d events, %d deliveries: %d delivered, %d lost, %d duplicates, %d signature failures, in %.1f s\n",
		r.Events, r.Deliveries, r.Delivered, r.Lost, r.Duplicates, r.SignatureFailures, r.Seconds)
	return err
}
